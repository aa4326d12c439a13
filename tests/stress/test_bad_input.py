"""The table of bad input has every public function; its cells are executed by test_stress."""

import inspect

import pytest

import robustmf
from robustmf import baselines, datasets, intervals, metrics, plot, selection
from robustmf.io import reading
from stress.bad_input import Answers, Cell, Raises, cells, markdown

#: Public, but without an argument that could be bad, or defined by scikit-learn.
WITHOUT = {
    "Observed.n_entries",
    "Observed.dtype",
    "Observed.columns",
    "Observed.column_order",
    "Observed.transposed",
    "Observed.to_host",
    "Observed.to_keep",
    "Observed.to_sparse",
    "Observed.to_dense",
    "Observed.column_counts",
    "Observed.placed",
    "Observed.sampled",
    "Observed.later_rows",
    "Observed.divided",
    "Observed.from_columns",
    "RobustMF.has_bias_",
    "RobustMF.get_metadata_routing",
    "RobustMF.get_params",
    "RobustMF.set_params",
    "RobustMF.set_output",
    "RobustMF.set_fit_request",
    "RobustMF.set_partial_fit_request",
    "RobustMF.set_score_request",
    "RobustMF.set_inverse_transform_request",
    "RobustMF.set_predict_request",
    "selection.EntryKFold.get_n_splits",
    "selection.TRIMMED",
    "datasets.load_dinosaur",
}


def _public():
    """Names of public functions and methods as the table has them."""
    yield "load"
    for cls, prefix in ((robustmf.RobustMF, "RobustMF"), (robustmf.Observed, "Observed")):
        yield from (
            f"{prefix}.{name}"
            for name, what in inspect.getmembers(cls)
            if not name.startswith("_") and callable(what)
        )
    for module in (selection, metrics, datasets, intervals, reading, baselines, plot):
        prefix = module.__name__.rpartition(".")[2]
        for name, what in vars(module).items():
            ours = getattr(what, "__module__", "").startswith(
                module.__name__
            ) and not name.startswith("_")
            if ours and inspect.isfunction(what):
                yield f"{prefix}.{name}"
            elif ours and inspect.isclass(what) and name != "Baseline":
                methods = (
                    attribute
                    for attribute in (
                        "fit",
                        "predict",
                        "transform",
                        "inverse_transform",
                        "score",
                        "split",
                    )
                )
                yield from (
                    f"{prefix}.{name}.{method}" for method in methods if hasattr(what, method)
                )


def test_every_public_function_is_in_the_table():
    listed = {cell.function.split(" ")[0] for cell in cells()}
    assert sorted(set(_public()) - listed - WITHOUT) == []


def test_a_wrong_cell_raises():
    def refuse():
        raise ValueError("X must be good")

    assert (
        Cell("f", "bad", refuse, Raises(ValueError, "X must")).executed()
        == "`ValueError`: X must be good"
    )
    with pytest.raises(AssertionError, match="was expected"):
        Cell("f", "bad", refuse, Raises(TypeError, "X must")).executed()
    with pytest.raises(AssertionError, match="does not match"):
        Cell("f", "bad", refuse, Raises(ValueError, "Y must")).executed()
    with pytest.raises(AssertionError, match="no error, but"):
        Cell("f", "bad", lambda: 1, Raises(ValueError, "X must")).executed()
    with pytest.raises(AssertionError, match="is not: one"):
        Cell("f", "bad", lambda: 2, Answers("one", lambda answer: answer == 1)).executed()


def test_the_documentation_prints_the_table(monkeypatch):
    monkeypatch.setattr(
        "stress.bad_input.cells",
        lambda: [Cell("f", "bad", lambda: 1, Answers("one | <two>", lambda answer: True))],
    )
    assert markdown().splitlines()[-1] == "| `f` | bad | one \\| &lt;two> |"
