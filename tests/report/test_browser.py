"""Pages in a browser: Chromium of the system, controlled by Playwright (extra "dev")."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest

from benchmarks.reproduction import drawing
from benchmarks.reproduction.sections import Cell, Chart, Section, Series, TableBlock
from robustmf import Observed, RobustMF
from robustmf.cli.demo_records import synthetic_record, tracks_record
from robustmf.exceptions import UnreliableFitWarning
from robustmf.report import demo_page

playwright = pytest.importorskip(
    "playwright.sync_api", reason="Playwright is not installed (extra 'dev')"
)
axe = pytest.importorskip(
    "axe_playwright_python.sync_playwright",
    reason="axe-playwright-python is not installed (extra 'dev')",
)
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium on this machine (Debian: apt-get install chromium)"
    ),
]

HOSTILE_IDS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"onmouseover="alert(1)',
    "<a href='javascript:alert(1)'>x</a>",
    "&lt;b&gt;${alert(1)}{{1+1}}",
    "",
    "x" * 3000,
    "שלום עולם",
    "\u202egnp.exe",
    "line\nbreak\ttab",
]
PHONE_WIDTH = 400
DESKTOP_WIDTH = 1400

#: Pages are smaller than this, whatever they show.
MAX_BYTES = 2_000_000


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=CHROMIUM)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of a fit with problematic ids, one with points in space, and that of the demo."""
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    X = (
        3
        + 0.5 * rng.standard_normal((80, 2)) @ rng.standard_normal((50, 2)).T
        + 0.1 * rng.standard_normal((80, 50))
    )
    X[np.arange(len(HOSTILE_IDS)), np.arange(len(HOSTILE_IDS))] += 9
    X[20:60, 30] = 5.0
    i, j = np.nonzero(np.ones_like(X))
    rows = [*HOSTILE_IDS, *(f"user {k}" for k in range(80))][:80]
    columns = [*HOSTILE_IDS, *(f"item {k}" for k in range(50))][:50]
    entries = Observed.from_triplets(
        row=[rows[k] for k in i], col=[columns[k] for k in j], value=X.ravel()
    )
    model = RobustMF(2, bias=True, validation_fraction=0.1, random_state=0)
    with pytest.warns(UnreliableFitWarning, match="1 of 50 columns"):
        model.fit(entries)
    model.report(folder / "fit.html", at_most=0.01)
    points = np.column_stack([rng.standard_normal((60, 3)), np.ones(60)])
    tracks = rng.standard_normal((12, 4)) @ points.T + 0.01 * rng.standard_normal((12, 60))
    RobustMF(4, random_state=0).fit(tracks).report(folder / "tracks.html", tracks=True)
    demo_page.write(synthetic_record(60, 0), tracks_record(0), folder / "demo.html")
    numbers = TableBlock(
        ["method", *(f"m = {m}" for m in (250, 500, 1000, 2000, 4000))],
        [[Cell("ours"), *[Cell("0.1±0.01", True)] * 5]],
        "RMSE",
    )
    curves = [
        Chart(
            f"c{k}",
            "Curves.",
            "seconds",
            "RMSE",
            [Series("ours", [0.1, 1, 10], [3, 1, 0.1])],
            log_x=True,
            log_y=True,
        )
        for k in range(2)
    ]
    section = Section("table1", "Table 1", "What it shows.", [numbers, *curves])
    drawing.write_html([section], folder / "reproduction.html", "Reproduction", "All tables.")
    return folder


class Visit:
    """An open page with its errors, dialogs and requests."""

    def __init__(self, browser, path, width, scheme="light"):
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, has_touch=width < 500
        )
        self.page = self.context.new_page()
        self.errors = []
        self.dialogs = []
        self.requests = []
        self.page.on(
            "console",
            lambda message: self.errors.append(message.text) if message.type == "error" else None,
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on(
            "dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss())
        )
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


#: Elements whose content is wider than they are, and texts of charts that are cut off. A table of
#: numbers in a region of its own (".wide") may be scrolled.
OVERFLOWING = """() => {
  const wide = [...document.querySelectorAll('main, main *:not(svg *):not(.wide):not(bdi)')]
    .filter(one => one.clientWidth > 0 && one.scrollWidth > one.clientWidth + 1);
  const cut = [...document.querySelectorAll('svg.chart text')].filter(text => {
    const own = text.getBoundingClientRect();
    const chart = text.closest('svg').getBoundingClientRect();
    return own.left < chart.left - 1 || own.right > chart.right + 1
      || own.top < chart.top - 1 || own.bottom > chart.bottom + 1;
  });
  return [...wide, ...cut].map(one => one.outerHTML.slice(0, 200));
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE_WIDTH, DESKTOP_WIDTH])
@pytest.mark.parametrize("name", ["fit", "tracks", "demo", "reproduction"])
def test_page_has_no_errors_fits_the_screen_and_is_accessible(browser, pages, name, width, scheme):
    with Visit(browser, pages / f"{name}.html", width, scheme) as visit:
        page = visit.page
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERFLOWING) == []
        plots = page.query_selector_all("svg.chart")
        assert len(plots) >= 2
        for plot in plots:
            assert 0.6 * min(width, 440) < plot.bounding_box()["width"] <= width
        ink = page.evaluate("getComputedStyle(document.querySelector('.xtick')).fill")
        assert ink == ("rgb(230, 233, 236)" if scheme == "dark" else "rgb(27, 31, 36)")
        serious = [
            (found["id"], [node["html"][:200] for node in found["nodes"]])
            for found in axe.Axe().run(page).response["violations"]
            if found["impact"] in ("serious", "critical")
        ]
        assert serious == []
        assert visit.errors == []
        fetched = [url for url in visit.requests if not url.startswith("data:")]
        assert fetched == [(pages / f"{name}.html").as_uri()]
        assert (pages / f"{name}.html").stat().st_size < MAX_BYTES


@pytest.mark.parametrize("width", [PHONE_WIDTH, DESKTOP_WIDTH])
@pytest.mark.parametrize("name", ["fit", "tracks"])
def test_tiles_and_figures_leave_no_holes(browser, pages, name, width):
    with Visit(browser, pages / f"{name}.html", width) as visit:
        page = visit.page
        right = "found => found.map(one => one.getBoundingClientRect()).map(b => [b.top, b.right])"
        end = page.locator(".tiles").bounding_box()
        rows = dict(sorted(page.eval_on_selector_all(".tiles div", right)))
        assert all(abs(last - end["x"] - end["width"]) < 1 for last in rows.values())
        for figures in page.locator(".figures").all():
            box = figures.bounding_box()
            last = figures.locator("figure").last.bounding_box()
            assert abs(last["x"] + last["width"] - box["x"] - box["width"]) < 1
            assert last["height"] < 900
        names = "cells => cells.map(cell => cell.getBoundingClientRect().width)"
        meaning = page.locator("table.pairs").first
        assert max(meaning.locator("th").evaluate_all(names)) < 0.2 * width


def test_ids_are_not_interpreted(browser, pages):
    with Visit(browser, pages / "fit.html", DESKTOP_WIDTH) as visit:
        page = visit.page
        shown = page.eval_on_selector_all(
            "#entries bdi", "cells => cells.map(cell => cell.textContent)"
        )
        assert {
            "<script>alert(1)</script>",
            "</script><script>alert(1)</script>",
            "(empty)",
            "שלום עולם",
            "\\u202egnp.exe",
        } <= set(shown)
        assert max(map(len, shown)) == 60
        assert (
            page.query_selector_all(
                "main img, main a, main bdi *, main [onmouseover], main [onerror]"
            )
            == []
        )
        labels = page.eval_on_selector_all(
            "svg.chart circle title", "titles => titles.map(title => title.textContent)"
        )
        literal = [key for key in HOSTILE_IDS if key and key.isprintable() and len(key) < 60]
        assert {f"row \u2068{key}\u2069" for key in [*literal, "(empty)"]} <= set(labels)
        assert page.query_selector_all("svg a, svg script, svg image:not([href^='data:'])") == []
        for button in page.query_selector_all("#entries [data-detail]")[: len(HOSTILE_IDS)]:
            button.click()
            assert page.query_selector_all("dialog td *, dialog h3 *") == []
            page.keyboard.press("Escape")
        assert visit.dialogs == []
        assert visit.errors == []


def column(page, table, k):
    return page.eval_on_selector_all(
        f"#{table} tbody tr:not([hidden]) td:nth-child({k})",
        "cells => cells.map(cell => cell.textContent)",
    )


@pytest.mark.parametrize("width", [PHONE_WIDTH, DESKTOP_WIDTH])
def test_table_sorts_and_filters(browser, pages, width):
    with Visit(browser, pages / "fit.html", width) as visit:
        page = visit.page
        scores = "cells => cells.map(cell => Number(cell.dataset.number))"
        first = page.eval_on_selector_all("#entries td:nth-child(5)", scores)
        assert first == sorted(first)
        assert len(first) > 15
        head = page.locator("#entries th", has_text="score")
        head.get_by_role("button").click()
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert page.eval_on_selector_all("#entries td:nth-child(5)", scores) == sorted(
            first, reverse=True
        )
        value = page.locator("#entries th", has_text="value").get_by_role("button")
        value.focus()
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") is None
        values = page.eval_on_selector_all("#entries td:nth-child(3)", scores)
        assert values == sorted(values)
        page.get_by_label("Search").first.fill("ALERT(1) script")
        found = column(page, "entries", 1)
        assert 0 < len(found) < len(first)
        assert page.inner_text("#entries [role=status]") == f"{len(found)} of {len(first)} shown"
        page.get_by_label("Search").first.fill("no such text")
        assert column(page, "entries", 1) == []
        page.get_by_label("Search").first.fill("")
        assert len(column(page, "entries", 1)) == len(first)
        assert visit.errors == []


@pytest.mark.parametrize("width", [PHONE_WIDTH, DESKTOP_WIDTH])
def test_a_row_leads_to_its_entries(browser, pages, width):
    with Visit(browser, pages / "fit.html", width) as visit:
        page = visit.page
        link = page.locator("#entries [data-detail^=rows]", has_text="שלום").first
        link.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        assert dialog.locator("h3").text_content() == "Row \u2068שלום עולם\u2069"
        cells = dialog.locator("tbody tr").first.locator("td").all_text_contents()
        assert cells[0] == "\u2068שלום עולם\u2069", "the bad entry is on the diagonal"
        assert float(cells[1]) - float(cells[2]) > 5
        scores = [float(text) for text in column_of(dialog, 4)]
        assert scores == sorted(scores)
        assert dialog.bounding_box()["width"] <= width
        dialog.get_by_role("button", name="Close").click()
        assert not dialog.is_visible()
        assert visit.errors == []


def column_of(dialog, k):
    return dialog.locator(f"tbody td:nth-child({k})").all_text_contents()


def test_suspicious_entries_are_downloaded_as_csv(browser, pages, tmp_path):
    with Visit(browser, pages / "fit.html", DESKTOP_WIDTH) as visit:
        with visit.page.expect_download() as started:
            visit.page.locator("#entries [data-download]").click()
        started.value.save_as(tmp_path / "entries.csv")
        assert started.value.suggested_filename == "entries.csv"
        with (tmp_path / "entries.csv").open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        assert header == ["row", "column", "value", "expected", "score", "reason"]
        assert len(rows) == len(column(visit.page, "entries", 1))
        assert {"x" * 3000, "line\nbreak\ttab"} <= {row[0] for row in rows}
        assert visit.errors == []


def test_the_policy_forbids_other_scripts_and_styles(browser, pages):
    with Visit(browser, pages / "fit.html", DESKTOP_WIDTH) as visit:
        visit.page.evaluate(
            """() => {
              const script = document.createElement('script');
              script.textContent = 'window.attacked = true';
              const image = document.createElement('img');
              image.src = 'https://example.org/pixel.png';
              document.body.append(script, image);
            }"""
        )
        visit.page.wait_for_timeout(100)
        assert visit.page.evaluate("window.attacked") is None
        assert len(visit.errors) == 2
        assert all("Content Security Policy" in error for error in visit.errors)


def test_plots_respond(browser, pages):
    with Visit(browser, pages / "tracks.html", DESKTOP_WIDTH) as visit:
        page = visit.page
        canvas = page.locator(".scene canvas")
        canvas.scroll_into_view_if_needed()
        page.wait_for_function("document.querySelector('canvas').dataset.view")
        before = canvas.get_attribute("data-view")
        box = canvas.bounding_box()
        x = box["x"] + box["width"] / 2
        y = box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 120, y + 40, steps=5)
        page.mouse.up()
        dragged = canvas.get_attribute("data-view")
        assert dragged != before
        canvas.focus()
        page.keyboard.press("ArrowLeft")
        assert canvas.get_attribute("data-view") != dragged
        drawn = "canvas => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)"
        assert canvas.evaluate(f"canvas => ({drawn})(canvas).data.some(byte => byte > 0)")
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(
            "getComputedStyle(document.querySelector('.xtick')).fill === 'rgb(230, 233, 236)'"
        )
        page.set_viewport_size({"width": PHONE_WIDTH, "height": 800})
        page.wait_for_function("document.querySelector('svg.chart').clientWidth <= 400")
        assert visit.errors == []
