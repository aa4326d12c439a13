"""Every text on a page is escaped: titles, captions, cells, names, reasons."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape

import numpy as np
import pytest

from robustmf import Observed, RobustMF
from robustmf.report import charts, fit_page, names, page, search_table
from robustmf.report.fit_record import fit_record

HOSTILE = "<b a='1' c=\"2\">&x</b>"


def test_titles_leads_and_headings_are_escaped(tmp_path):
    path = tmp_path / "page.html"
    page.write_page(path, HOSTILE, HOSTILE, [])
    text = path.read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert f"<title>{escape(HOSTILE)}</title>" in text
    assert f"<h1>{escape(HOSTILE)}</h1><p>{escape(HOSTILE)}</p>" in text


def test_cells_headers_and_labels_of_tables_are_escaped():
    text = page.table([HOSTILE, "b"], [[HOSTILE, "1"], ["2", HOSTILE]], best=0, bold={(1, 1)})
    assert HOSTILE not in text
    assert text.count(escape(HOSTILE)) == 4  # header, label, plain cell, bold cell
    assert f"<strong>{escape(HOSTILE)}</strong>" in text
    assert text.count('class="best"') == 1
    pairs = page.pairs_table({HOSTILE: "1", "a": HOSTILE})
    assert HOSTILE not in pairs
    assert pairs.count(escape(HOSTILE)) == 2


def test_captions_are_escaped():
    text = page.figure("<svg></svg>", HOSTILE)
    assert f"<figcaption>{escape(HOSTILE)}</figcaption>" in text


def test_tooltips_and_labels_of_plots_are_escaped():
    long = HOSTILE * 10
    shown = names.cell(long)
    assert shown.startswith(f'<bdi title="{escape(long)}">')
    assert "<b" not in shown.removeprefix("<bdi")
    assert names.isolated("<b>\u202e") == "\u2068<b>\\u202e\u2069"
    assert len(names.short("x" * 100)) == 60
    assert names.plain("a\x07\u202e\u2028") == "a\\x07\\u202e\\u2028"
    assert names.plain("a\nb\x07", keep="\n") == "a\nb\\x07"


@pytest.fixture(scope="module")
def record():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2)) @ rng.standard_normal((2, 20))
    X += 0.1 * rng.standard_normal(X.shape)
    X[0, 0] += 10
    i, j = np.nonzero(np.ones_like(X))
    entries = Observed.from_triplets(
        row=[f"{HOSTILE}{k}" for k in i], col=[f"{k}{HOSTILE}" for k in j], value=X.ravel()
    )
    return fit_record(RobustMF(2, bias=False, random_state=0).fit(entries))


def test_ids_and_reasons_in_the_tables_of_suspects_are_escaped(record):
    key = f"{HOSTILE}0"
    record = record | {
        "entries": [(key, key, 1.0, 2.0, 0.001, HOSTILE)],
        "rows": [(key, 3, 0.001, HOSTILE)],
        "columns": [(key, 3, 0.001, HOSTILE)],
        "summary": {HOSTILE: HOSTILE},
    }
    text = "".join(fit_page.sections(record))
    assert HOSTILE not in text
    tables = text[text.index("<h2>Suspicious entries</h2>") : text.index("<h2>What θ")]
    assert tables.count(escape(HOSTILE)) >= 7
    # rows and columns are isolated from the direction of other text, entries twice
    assert tables.count("<bdi>") == 4
    model = text[text.index("<h2>Model</h2>") : text.index("<h2>Reproduction</h2>")]
    assert model.count(escape(HOSTILE)) == 2


def test_texts_of_charts_and_tiles_are_escaped():
    drawn = charts.Chart(
        charts.Axis(HOSTILE, 0, 1, ticks=[(0, HOSTILE)]), charts.Axis(HOSTILE, 0, 1), HOSTILE
    )
    drawn.line([0, 1], [0, 1], 0, HOSTILE)
    drawn.points([0], [1], 0, names=[HOSTILE])
    drawn.text(0, 1, HOSTILE)
    drawn.boxes([(0, 0, 1, 1, HOSTILE)])
    text = drawn.svg() + page.tiles([(HOSTILE, HOSTILE, HOSTILE)])
    assert HOSTILE not in text
    assert text.count(escape(HOSTILE)) == 11


def test_data_for_the_script_cannot_end_their_element():
    text = page.data_element("d", {"key": "</script><!--"})
    assert text.count("<") == 2
    assert json.loads(text[text.index(">") + 1 : text.rindex("<")]) == {"key": "</script><!--"}


def test_the_policy_has_the_hashes_of_style_and_script(tmp_path):
    path = tmp_path / "page.html"
    page.write_page(path, "title", "lead", [], style="p { color: red; }", script="let x = 1;")
    text = path.read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none';")
    for element in ("style", "script"):
        content = re.search(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy


def test_downloads_are_protected_from_spreadsheets():
    text = search_table.csv_of(["row", "value"], [("=1+1", -1.5), ("a,b", 2)])
    assert text == 'row,value\n\'=1+1,-1.5\n"a,b",2\n'


def test_the_lead_states_the_share_of_bad_entries(record, tmp_path):
    path = tmp_path / "page.html"
    fit_page.write(record | {"clean_share": 0.93}, path, "title")
    assert "About 7.0 % of the entries do not fit" in path.read_text(encoding="utf-8")


def test_the_record_counts_residuals_beyond_the_histogram_and_the_share_of_two_axes():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 30))
    X += 0.1 * rng.standard_normal(X.shape)
    X[rng.random(X.shape) < 0.03] += 50
    model = RobustMF(3, bias=False, random_state=0).fit(X)
    record = fit_record(model)
    residual = np.abs(X - model.row_factors_ @ model.column_factors_.T)
    width = record["residuals"]["centers"][1] - record["residuals"]["centers"][0]
    limit = record["residuals"]["centers"][-1] + width / 2
    assert record["residuals"]["beyond"] == (residual > limit).sum() > 0
    squares = np.linalg.svd(model.row_factors_ @ model.column_factors_.T)[1] ** 2
    assert record["map"]["share"] == pytest.approx(squares[:2].sum() / squares.sum())
