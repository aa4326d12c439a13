"""Plots: what is drawn is what the model answers, and the given Axes are used."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from robustmf import RobustMF, plot
from robustmf.report import quantities
from robustmf.report.quantities import Grid

mpl = pytest.importorskip("matplotlib", reason="Matplotlib is not installed (extra 'plot')")
mpl.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402 - after the backend was selected


@pytest.fixture(scope="module")
def table():
    """A rank-2 table with labels that Matplotlib would interpret, a gap and two bad cells."""
    rng = np.random.default_rng(0)
    cells = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 30)) + 0.05 * rng.normal(size=(40, 30))
    cells[3, 4] += 30
    cells[8, 9] -= 30
    cells[5, 6] = np.nan
    return pd.DataFrame(
        cells, index=[f"$x_{k}$" for k in range(40)], columns=[f"c{k}" for k in range(30)]
    )


@pytest.fixture(scope="module")
def model(table):
    return RobustMF(2, bias=False, random_state=0).fit(table)


@pytest.fixture
def ax():
    figure, axes = plt.subplots()
    yield axes
    figure.canvas.draw()  # labels are parsed when they are drawn
    plt.close(figure)


def texts(labels):
    return [label.get_text() for label in labels]


def test_residuals_count_every_entry_and_show_theta(model, ax):
    assert plot.residuals(model, bins=20, ax=ax) is ax
    counts, edges, _ = ax.patches[0].get_data()
    assert counts.sum() == 40 * 30 - 1
    assert len(edges) == 21
    assert sorted(line.get_xdata()[0] for line in ax.lines) == pytest.approx(
        [-model.theta_, model.theta_]
    )
    assert "2 beyond" in ax.get_title()


def test_residuals_are_divided_by_the_scales_of_rows_and_columns(model, ax):
    scaled = copy.copy(model)
    scaled.model_ = dataclasses.replace(model.model_, scales=(np.full(40, 2.0), np.ones(30)))
    plot.residuals(model, ax=ax)
    plot.residuals(scaled, ax=ax)
    plain, halved = (patch.get_data().edges for patch in ax.patches)
    np.testing.assert_allclose(halved, plain / 2)
    assert ax.get_xlabel() == "residual / scale of its row and column"


def test_weights_are_drawn_over_the_table(model, table, ax):
    plot.weights(model, ax=ax)
    drawn = ax.images[0].get_array()
    np.testing.assert_allclose(drawn.filled(np.nan), model.entry_weights(table).to_numpy())
    assert texts(ax.get_yticklabels())[0] == "$x_0$"
    assert texts(ax.get_xticklabels())[-1] == "c29"


def test_cleaning_marks_the_bad_cells_and_replaces_them(model, table):
    axes = plot.cleaning(model, table, at_most=1e-6)
    before, after = (ax.images[0].get_array() for ax in axes)
    cleaned, mask = model.clean(table, at_most=1e-6, replace=True)
    np.testing.assert_allclose(before.filled(np.nan), table.to_numpy())
    np.testing.assert_allclose(after.filled(np.nan), cleaned.to_numpy())
    marked = {tuple(point) for point in axes[0].collections[0].get_offsets()}
    assert marked == {(j, i) for i, j in np.argwhere(mask.to_numpy())}
    assert axes[0].get_title() == "Before: 2 bad cells"
    with pytest.raises(ValueError, match="axes must be two Axes, got 1"):
        plot.cleaning(model, axes=axes[:1])
    plt.close("all")


def test_missing_cells_have_a_color_of_their_own(model, table):
    for draw in (plot.weights, plot.cleaning):
        ax = np.ravel(draw(model, table))[0]
        image = ax.images[0]
        missing = image.to_rgba(image.get_array())[5, 6]
        scale = image.cmap(np.linspace(0, 1, 256))
        assert missing[3] == 1, "a transparent cell has the color of the page"
        assert np.abs(scale - missing)[:, :3].max(axis=1).min() > 0.2
        labels = {axes.get_ylabel() for axes in ax.figure.axes}
        assert any(label.endswith("(gray: missing)") for label in labels)
        plt.close(ax.figure)


def test_a_large_table_is_reduced_to_blocks(model, ax):
    plot.weights(model, max_side=7, ax=ax)
    assert ax.images[0].get_array().shape == (7, 6)
    assert ax.get_xlim() == (-0.5, 29.5)
    assert ax.get_ylim() == (39.5, -0.5)  # the last block extends beyond the table


def test_blocks_have_the_means_of_their_entries():
    i = np.array([0, 0, 4])
    j = np.array([0, 1, 3])
    grid = Grid.of(i, j, (5, 4), 2)
    assert (grid.shape, grid.blocks) == ((2, 2), (3, 2))
    np.testing.assert_array_equal(
        grid.means(np.array([1.0, 3.0, 7.0])), [[2.0, np.nan], [np.nan, 7.0]]
    )
    marked = grid.marked(np.array([False, True, False]))
    np.testing.assert_array_equal(marked, [[True, False], [False, False]])


def candidate(name, rank, error, chosen=False):
    return SimpleNamespace(model=name, rank=rank, error=error, standard_error=0.1, chosen=chosen)


def test_candidates_are_in_the_order_of_their_ranks(ax):
    compared = [
        candidate("rank 2", 2, 0.5, chosen=True),
        candidate("center", 0, 2.0),
        candidate("biases", 0, 1.0),
    ]
    plot.rank_candidates(compared, ax=ax)
    assert texts(ax.get_xticklabels()) == ["center", "biases", "rank 2"]
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [2.0, 1.0, 0.5])
    assert texts(ax.get_legend().get_texts()) == ["chosen"]


def test_a_model_without_candidates_has_a_note(ax):
    plot.rank_candidates(SimpleNamespace(), ax=ax)
    assert "no models were compared" in ax.texts[0].get_text()


def test_one_candidate_is_stated_in_words(ax):
    plot.rank_candidates([candidate("factors", 3, 0.5, chosen=True)], ax=ax)
    text = " ".join(ax.texts[0].get_text().split())
    assert text == "No other model was compared with “factors”."
    assert not ax.lines


def test_the_reason_of_a_choice_stands_below_the_candidates(ax):
    compared = [
        candidate("factors", 3, 0.50, chosen=True),
        candidate("biases and factors", 3, 0.49),
    ]
    plot.rank_candidates(compared, ax=ax)
    reason = " ".join(ax.get_xlabel().split())
    assert reason == quantities.reason_of_choice(compared)
    assert reason.startswith("“biases and factors” has a smaller error. Of two models with factors")
    assert "simplest" not in reason
    simple = [candidate("center", 0, 0.51, chosen=True), candidate("biases", 0, 0.5)]
    assert quantities.reason_of_choice(simple) == (
        "“biases” has a smaller error. “center” is the simplest model whose error is that of the "
        "best, up to one standard error."
    )
    best = [candidate("center", 0, 1.0), candidate("factors", 2, 0.5, chosen=True)]
    assert quantities.reason_of_choice(best) == "“factors” has the smallest error."
    assert quantities.reason_of_choice(best[:1]) == ""


def test_labels_cover_no_points(ax):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 2)) @ rng.standard_normal((2, 30))
    crowded = RobustMF(2, bias=False, random_state=0).fit(X + 0.01 * rng.standard_normal(X.shape))
    plot.factor_map(crowded, ax=ax)
    boxes = boxes_of_texts(ax, ax.texts)
    assert len(boxes) > 5
    points = np.vstack([ax.transData.transform(one.get_offsets()) for one in ax.collections])
    for box in boxes:
        inner = box.padded(-2)
        assert not inner.count_contains(points)


def test_the_reason_is_not_wider_than_the_axes():
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.6), layout="constrained")
    compared = [candidate("center", 0, 0.5), candidate("biases", 0, 0.51, chosen=True)]
    for ax in axes:
        plot.rank_candidates(compared, ax=ax)
    figure.canvas.draw()
    left, right = (ax.xaxis.label.get_window_extent() for ax in axes)
    assert left.x1 < right.x0
    assert right.x1 <= figure.bbox.x1
    plt.close(figure)


@pytest.mark.filterwarnings("ignore::robustmf.exceptions.UnreliableFitWarning")
def test_labels_of_column_scores_do_not_cover_each_other(ax):
    rng = np.random.default_rng(0)
    X = np.outer(rng.uniform(1, 3, 60), rng.uniform(2, 8, 80)) + 0.05 * rng.standard_normal(
        (60, 80)
    )
    X[:, 40:46] = rng.uniform(-20, 20, (60, 6))
    table = pd.DataFrame(X, columns=[f"a long name {k}" for k in range(80)])
    plot.column_scores(RobustMF(1, bias=False, random_state=0).fit(table), labels=6, ax=ax)
    boxes = boxes_of_texts(ax, ax.texts)
    assert boxes
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[:k])


def test_factor_map_has_rows_and_columns_with_labels(model, ax):
    plot.factor_map(model, labels=3, ax=ax)
    rows, columns = (points.get_offsets() for points in ax.collections)
    predicted = model.row_factors_ @ model.column_factors_.T
    np.testing.assert_allclose(np.asarray(rows) @ np.asarray(columns).T, predicted, atol=1e-9)
    shown = texts(ax.texts)
    assert sum(text.startswith("$x_") for text in shown) == 3
    assert sum(text.startswith("c") for text in shown) == 3
    with pytest.raises(ValueError, match="two factors, got a model of rank 1"):
        plot.factor_map(RobustMF(1, random_state=0).fit(np.outer(range(1, 9), range(1, 8))))


def boxes_of_texts(ax, drawn):
    ax.figure.canvas.draw()
    return [text.get_window_extent() for text in drawn]


def test_labels_of_the_factor_map_do_not_cover_each_other(model, ax):
    plot.factor_map(model, labels=50, ax=ax)
    boxes = boxes_of_texts(ax, ax.texts)
    assert len(boxes) > 5
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[:k])
    frame = ax.bbox.padded(2)
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


def test_names_of_candidates_do_not_cover_each_other(ax):
    names = ["center", "biases", "factors", "center and factors", "biases and factors"]
    plot.rank_candidates([candidate(name, k, 1.0) for k, name in enumerate(names)], ax=ax)
    boxes = boxes_of_texts(ax, ax.get_xticklabels())
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))


def test_long_labels_are_shortened_and_times_have_no_zeros(ax):
    times = pd.date_range("2026-01-01", periods=6, freq="90min")
    cells = np.outer(np.arange(1.0, 7), np.arange(1.0, 6))
    X = pd.DataFrame(cells, index=times, columns=[f"a rather long name of {k}" for k in range(5)])
    plot.weights(RobustMF(1, random_state=0).fit(X), ax=ax)
    assert texts(ax.get_yticklabels())[:2] == ["2026-01-01", "2026-01-01 01:30"]
    assert set(texts(ax.get_xticklabels())) == {"a rather long n…"}


def test_row_scores_are_bars_with_the_worst_on_top(model, table, ax):
    plot.row_scores(model, top=4, at_most=0.5, ax=ax)
    expected = model.row_scores().nsmallest(4)
    assert texts(ax.get_yticklabels())[::-1] == list(expected.index)
    ends = [bar.get_x() + bar.get_width() for bar in ax.patches][::-1]
    np.testing.assert_allclose(ends, expected, rtol=1e-9)


@pytest.mark.parametrize("draw", [plot.weights, plot.factor_map, plot.row_scores])
def test_labels_are_not_interpreted_as_formulas(draw, model, ax):
    draw(model, ax=ax)
    labels = [text for text in ax.findobj(mpl.text.Text) if text.get_text().startswith("$x_")]
    assert labels
    assert not any(text.get_parse_math() for text in labels)


def test_column_scores_are_in_the_order_of_the_columns(model, table, ax):
    plot.column_scores(model, table, ax=ax)
    drawn = np.asarray(ax.collections[1].get_offsets())[:, 1]
    np.testing.assert_allclose(drawn, model.column_scores().to_numpy(), rtol=1e-9)


def test_new_rows_have_scores(model, table, ax):
    new = table.iloc[:3].rename(index=lambda label: f"new {label}")
    plot.row_scores(model, new, rows="new", ax=ax)
    assert set(texts(ax.get_yticklabels())) == set(new.index)


@pytest.mark.parametrize("name", sorted(set(plot.__all__) - {"rank_candidates"}))
def test_an_unfitted_model_is_refused(name):
    with pytest.raises(NotFittedError):
        getattr(plot, name)(RobustMF())


def test_without_matplotlib_the_extra_is_named(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot")
    with pytest.raises(ImportError, match=r"robustmf\[plot\]"):
        plot.residuals(model)
