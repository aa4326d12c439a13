"""Model files of every release are loaded, and answer as they did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import robustmf
from forged import put, rewritten
from robustmf.exceptions import ModelFileError

MODELS = sorted((Path(__file__).parents[1] / "fixtures" / "models").glob("*.rmf"))


def test_there_are_files_of_the_first_release():
    assert {path.name for path in MODELS} >= {
        "0.1.0-ids.rmf",
        "0.1.0-mm.rmf",
        "0.1.0-rmfnl.rmf",
    }


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_file_of_a_release_is_loaded(path, tmp_path):
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    model = robustmf.load(path)
    rows = list(range(30)) if model.row_ids_ is None else model.row_ids_
    columns = list(range(25)) if model.column_ids_ is None else model.column_ids_
    assert type(model).__name__ == expected["class"]
    assert repr(model.loss_) == expected["loss"]
    assert (model.reg_, model.theta_) == (expected["reg"], expected["theta"])
    assert repr(model.solver) == expected["solver"]
    assert model.history_["objective"][-1] == expected["objective"]
    np.testing.assert_array_equal(model.row_factors_[:3], expected["factors"])
    single = model.row_factors_.dtype == np.float32
    np.testing.assert_allclose(
        model.predict(rows[:10], columns[:10]),
        expected["prediction"],
        rtol=1e-5 if single else 1e-12,
    )
    # what needs the stored entries and random numbers works, too
    model.recommend(rows[0], 3)
    assert (model.outlier_scores() <= 1).all()
    model.save(tmp_path / "again.rmf")
    again = robustmf.load(tmp_path / "again.rmf")
    np.testing.assert_array_equal(again.column_factors_, model.column_factors_)


def test_parameters_that_a_release_did_not_have_take_their_defaults(tmp_path):
    """A release adds parameters; files of earlier ones stay readable."""
    content = MODELS[0].read_bytes()

    def alter(document, arrays):
        del document["parameters"]["patience"]

    path = tmp_path / "model.rmf"
    path.write_bytes(rewritten(content, alter))
    assert robustmf.load(path).patience == 5
    path.write_bytes(rewritten(content, put("added_later", 1, "parameters")))
    with pytest.raises(ModelFileError, match=r"added_later.*a later release"):
        robustmf.load(path)
