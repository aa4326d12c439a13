"""The record and the page of a fit; test_browser.py tests how the page looks and works."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn

from robustmf import RMFNL, Observed, RobustMF
from robustmf.datasets import make_synthetic
from robustmf.report import fit_page, names
from robustmf.report.fit_record import PageOptions, fit_record
from robustmf.report.structure_from_motion import scene_points


@pytest.fixture(scope="module")
def fitted():
    return RobustMF(5, validation_fraction=0.1, random_state=0).fit(
        make_synthetic(100, random_state=0).train
    )


def test_record_contains_the_results_of_the_model(fitted):
    record = fit_record(fitted)
    residuals = record["residuals"]
    assert sum(residuals["counts"]) == fitted.entries_["values"].size
    weights = fitted.loss_.weight(np.array(residuals["centers"]))
    np.testing.assert_allclose(residuals["weights"], weights / fitted.loss_.weight(np.zeros(1)))
    audit = fitted.audit(top=200)
    assert [one[4] for one in record["entries"]] == [one.score for one in audit.entries]
    assert record["history"]["validation"][record["best_iteration"]] == min(
        record["history"]["validation"]
    )
    points = record["map"]
    assert len(points["rows"]["x"]) == 100
    # the coordinates are the factors of the best approximation of rank 2
    P, S, Qt = np.linalg.svd(fitted.row_factors_ @ fitted.column_factors_.T, full_matrices=False)
    mapped = np.outer(points["rows"]["x"], points["columns"]["x"]) + np.outer(
        points["rows"]["y"], points["columns"]["y"]
    )
    np.testing.assert_allclose(mapped, (P[:, :2] * S[:2]) @ Qt[:2], atol=1e-9)


def test_record_has_the_table_before_and_after(fitted):
    table = fit_record(fitted)["table"]
    observed = fitted.model_.fitted_entries()
    np.testing.assert_allclose(table["before"], observed.to_dense())
    cleaned, mask = fitted.clean(observed, at_most=table["at_most"], replace=True)
    np.testing.assert_allclose(table["after"], cleaned.to_dense())
    assert table["flagged"] == mask.sum() == len(table["marked"]) > 0
    assert table["codes"] == []
    text = "".join(fit_page.sections(fit_record(fitted) | {"table": table | {"codes": [(-9, 12)]}}))
    assert "<p>-9 occurs 12 times, far from all other values." in text


def test_the_cells_that_are_marked_are_the_worst(fitted, monkeypatch):
    every = fit_record(fitted)["table"]
    monkeypatch.setattr("robustmf.report.fit_record._OPTIONS", PageOptions(max_marked=3))
    table = fit_record(fitted)["table"]
    assert table["flagged"] == every["flagged"] > 3
    assert table["marked"] == every["marked"][:3]


def test_record_has_the_worst_entries_of_listed_rows_and_columns(fitted):
    record = fit_record(fitted)
    scores = fitted.outlier_scores()
    entries = fitted.model_.fitted_entries().rows
    i = entries.group_of_entry()
    assert {one[0] for one in record["entries"]} <= set(record["details"]["rows"])
    for key, found in record["details"]["rows"].items():
        own = np.sort(scores[i == key])
        assert found["count"] == len(own)
        listed = [one[3] for one in found["entries"]]
        np.testing.assert_allclose(listed, own[: len(listed)], rtol=0.05)
    assert {one[1] for one in record["entries"]} <= set(record["details"]["columns"])


def test_meaning_of_theta_and_lambda(fitted):
    meaning = fit_record(fitted)["meaning"]
    assert meaning["θ"].startswith(f"θ = {fitted.theta_:.3g}, in the unit of the data")
    weight = fitted.loss_.weight(np.array([fitted.theta_, 0.0]))
    assert f"by θ has {weight[0] / weight[1]:.0%} of the weight" in meaning["θ"]
    assert f"λ = {fitted.reg_:.3g}" in meaning["λ"]
    without = fit_record(
        RobustMF(2, loss="l2", random_state=0).fit(np.outer(range(1, 9), range(1, 9)))
    )
    assert without["meaning"]["θ"].startswith("This loss has no scale θ")


def test_evidence_for_the_rank(fitted, monkeypatch):
    rank = fit_record(fitted)["rank"]
    singular = np.linalg.svd(fitted.row_factors_ @ fitted.column_factors_.T, compute_uv=False)
    np.testing.assert_allclose(rank["contributions"], singular[:5] / 100, rtol=1e-9)
    assert [one[0] for one in rank["candidates"] if one[-1]] == ["factors"]
    monkeypatch.setattr(RobustMF, "candidates_", (), raising=False)
    text = "".join(fit_page.sections(fit_record(fitted)))
    assert "Models compared: error" not in text
    compared = [
        SimpleNamespace(model=f"rank {k}", rank=k, error=1 / k, standard_error=0.1, chosen=k == 2)
        for k in (1, 2, 3)
    ]
    monkeypatch.setattr(RobustMF, "candidates_", compared, raising=False)
    record = fit_record(fitted)
    assert [one[0] for one in record["rank"]["candidates"]] == ["rank 1", "rank 2", "rank 3"]
    text = "".join(fit_page.sections(record))
    assert "Models compared: error" in text
    assert text.count("<title>rank 2: 0.5</title>") == 1
    assert "the marked one was chosen. “rank 3” has a smaller error. Of two models" in text
    monkeypatch.setattr(RobustMF, "candidates_", compared[1:2], raising=False)
    text = "".join(fit_page.sections(fit_record(fitted)))
    assert "Models compared: error" not in text
    assert "No other model was compared with “rank 2”.</p>" in text


def test_the_contribution_of_one_factor_is_stated_in_words():
    rng = np.random.default_rng(0)
    X = np.outer(rng.uniform(1, 3, 40), rng.uniform(2, 5, 12)) + 0.1 * rng.standard_normal((40, 12))
    record = fit_record(RobustMF(1, bias=False, random_state=0).fit(X))
    text = "".join(fit_page.sections(record))
    assert "The model has 1 factor; the rank was given." in text
    assert "The factor contributes 7" in text
    assert "Contribution of each factor" not in text


def test_record_reproduces_the_fit(fitted):
    text = fit_record(fitted)["reproduction"]["model"]
    again = eval(text, {"RobustMF": RobustMF}).fit(make_synthetic(100, random_state=0).train)
    np.testing.assert_array_equal(again.row_factors_, fitted.row_factors_)


def test_report_of_different_fits(tmp_path, fitted):
    assert fitted.report(tmp_path / "a.html", title="<One> & only") == tmp_path / "a.html"
    text = (tmp_path / "a.html").read_text()
    assert "<h1>&lt;One&gt; &amp; only</h1>" in text
    assert "validation error" in text
    small = np.random.default_rng(0).standard_normal((12, 8))
    for model in (
        RobustMF(1),
        RobustMF(2, loss="l2", bias=True),
        RMFNL(2, loss="l1"),
        RobustMF(2, max_iter=0, loss="lsp"),
    ):
        model.set_params(random_state=0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("warnings.warn", lambda *_, **__: None)  # 12 × 8 entries are few
            model.fit(small)
        model.report(tmp_path / "b.html")
        assert ("Factor map" in (tmp_path / "b.html").read_text()) == (model.rank > 1)


def test_an_unfitted_model_has_no_report(tmp_path):
    with pytest.raises(sklearn.exceptions.NotFittedError):
        RobustMF().report(tmp_path / "x.html")


def test_points_in_space_are_recovered():
    """Scaled orthographic cameras: recovery up to rotation, reflection and scale."""
    rng = np.random.default_rng(0)
    true = rng.standard_normal((200, 3)) * [3, 2, 1]
    true -= np.median(true, axis=0)
    rows = []
    for _ in range(8):
        rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        rows += list(
            rng.uniform(0.5, 2) * np.column_stack([rotation[:2], rng.uniform(100, 300, 2)])
        )
    gauge = rng.standard_normal((4, 4))
    U = np.array(rows) @ gauge
    V = np.column_stack([true, np.ones(200)]) @ np.linalg.inv(gauge).T
    found = scene_points(U, V)
    a = found - found.mean(axis=0)
    b = true - true.mean(axis=0)
    left, scale, right = np.linalg.svd(a.T @ b)
    aligned = a @ (left @ right) * scale.sum() / np.square(a).sum()
    np.testing.assert_allclose(aligned, b, atol=1e-6)


def test_tracks_need_rank_4(tmp_path, fitted):
    with pytest.raises(
        ValueError, match="tracks need rank 4 and two rows per frame, x and y, got rank 5"
    ):
        fitted.report(tmp_path / "x.html", tracks=True)


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("<script>alert(1)</script>", "<bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi>"),
        ("", "<bdi>(empty)</bdi>"),
        ("שלום", "<bdi>שלום</bdi>"),
        ("می‌خواهم", "<bdi>می‌خواهم</bdi>"),
        ("\u202egnp.exe", "<bdi>\\u202egnp.exe</bdi>"),
        ("a\x1b[31m\nb", "<bdi>a\\x1b[31m\\nb</bdi>"),
        ("\ud800", "<bdi>\\ud800</bdi>"),
        (("a", 1), "<bdi>(&#x27;a&#x27;, 1)</bdi>"),
        ("x" * 5000, f'<bdi title="{"x" * 5000}">{"x" * 59}…</bdi>'),
    ],
)
def test_ids_are_escaped(key, shown):
    assert names.cell(key) == shown
    names.isolated(key).encode()


def test_ids_cannot_close_the_script_of_the_page(tmp_path):
    hostile = "</script><script>alert(1)</script>"
    record = fit_record(RobustMF(2, random_state=0).fit(_named([hostile, *map(str, range(29))])))
    fit_page.write(record, tmp_path / "page.html", hostile)
    text = (tmp_path / "page.html").read_text()
    drawn = text.split("<h1>")[1]
    assert hostile not in drawn
    # the data of the tables and the script of the page
    assert len(re.findall(r"<script", drawn)) == len(re.findall(r"</script>", drawn)) == 2


def _named(ids):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((len(ids), 2)) @ rng.standard_normal(
        (20, 2)
    ).T + 0.1 * rng.standard_normal((len(ids), 20))
    X[0, 0] += 10
    i, j = np.nonzero(np.ones_like(X))
    return Observed.from_triplets(
        row=[ids[k] for k in i], col=[f"c{k}" for k in j], value=X.ravel()
    )


def test_notebook_representation_shows_diagram_and_fit(fitted):
    plain = RobustMF(5)
    assert "robustmf-fit" not in plain._repr_html_()
    shown = fitted._repr_html_()
    assert "sk-top-container" in shown
    assert '<table class="robustmf-fit">' in shown
    assert "rank 5, given, welsch loss" in shown
    assert shown.count("validation error") == 1
    bundle = fitted._repr_mimebundle_()
    assert "robustmf-fit" in bundle["text/html"]
    with sklearn.config_context(display="text"):
        assert not hasattr(fitted, "_repr_html_")


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.RobustMFWarning")
def test_a_lone_surrogate_in_a_title_is_escaped(tmp_path):
    model = RobustMF(1, random_state=0, n_jobs=1).fit(
        np.outer(np.arange(1.0, 9), np.arange(1.0, 7))
    )
    fit_page.write(fit_record(model), tmp_path / "page.html", "\ud800")
    assert "<h1>\\ud800</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")
