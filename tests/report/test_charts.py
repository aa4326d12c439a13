"""Charts of pages: axes, pictures and the numbers that they show."""

from __future__ import annotations

import base64
import itertools
import re
import zlib

import numpy as np
import pytest

from robustmf.losses import loss_names, make_loss
from robustmf.report.charts import LAYOUT, Axis, Chart, _png
from robustmf.report.quantities import relative_weights


def test_a_logarithmic_axis_leaves_out_what_has_no_logarithm():
    axis = Axis.over("", [0.0, -3.0, np.nan, 1.0, 100.0], log=True)
    assert 0 < axis.low < 1
    assert 100 < axis.high < 200
    linear = Axis.over("", [0.0, -3.0, np.nan, 1.0])
    assert linear.low < -3
    assert linear.high > 1


def test_cells_without_a_number_are_gray():
    cells = np.array([[0.0, np.nan, 1.0], [np.nan, 0.5, 0.5]])
    content = base64.b64decode(_png(cells, 0.0, 1.0).partition(",")[2])
    begin = content.index(b"IDAT") + 4
    length = int.from_bytes(content[begin - 8 : begin - 4], "big")
    lines = np.frombuffer(zlib.decompress(content[begin : begin + length]), np.uint8)
    pixels = lines.reshape(2, 1 + 3 * 3)[:, 1:].reshape(2, 3, 3)
    is_gray = (pixels == pixels[..., :1]).all(axis=2)
    np.testing.assert_array_equal(is_gray, np.isnan(cells))
    assert (pixels[0, 0] == [68, 1, 84]).all()
    assert (pixels[0, 2] == [253, 231, 37]).all()


@pytest.mark.parametrize("name", loss_names())
def test_weights_are_relative_to_that_of_an_exact_entry(name):
    loss = make_loss(name)
    weights = relative_weights(loss, np.linspace(0, 10, 101))
    assert weights[0] == 1
    assert np.isfinite(weights).all()
    assert (np.diff(weights) <= 1e-12).all()
    if loss.concave:
        np.testing.assert_allclose(weights[50] * loss.derivative(np.zeros(1)), loss.derivative(5.0))


def test_long_texts_of_ticks_have_space_beside_the_title():
    """Texts of six characters covered the title of the axis."""
    y = Axis.over("error", [0.00115, 0.00275])
    widest = max(len(text) for _, text in y.tick_texts())
    assert widest >= 6
    chart = Chart(Axis.over("", [0.0, 1.0]), y, "")
    assert chart.left - 6 - LAYOUT.character * widest >= 19


def test_texts_of_ticks_do_not_cover_each_other_and_stay_in_the_picture():
    """The last of these texts is moved to the left, and covered the one before."""
    labels = ["2001: A Space O…", "Judge Dredd (19…", "Young Frankenst…"]
    ticks = list(zip((0.5, 200.5, 334.5), labels, strict=True))
    chart = Chart(Axis("columns", 0.0, 335.0, ticks=ticks), Axis("rows", 0.0, 603.0), "")
    texts = re.findall(r'class="xtick" x="([\d.]+)"[^>]*>([^<]*)<', chart.svg())
    assert texts[0][1] == labels[0]
    boxes = [
        (float(x) - LAYOUT.character / 2 * len(text), float(x) + LAYOUT.character / 2 * len(text))
        for x, text in texts
    ]
    assert boxes[0][0] >= 0
    assert boxes[-1][1] <= LAYOUT.width
    assert all(after[0] > before[1] for before, after in itertools.pairwise(boxes))
