"""The table of bad input: every public function, every kind of bad input, and what happens; each cell is executed.

``docs/design/bad-input.md`` prints it from here, ``stress/checks/bad_input_table.py`` checks it: an error of the stated type whose message
matches, or the stated answer. So neither can say what the code does not do.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import robustmf
from robustmf import RMFNL, Observed, RobustMF, baselines, datasets, metrics, selection
from robustmf.exceptions import (
    DuplicateEntryError,
    MalformedFileError,
    ModelFileError,
    NotSavableError,
    RobustMFWarning,
)
from robustmf.intervals import ConformalIntervals
from robustmf.io import reading


@dataclass(frozen=True)
class Raises:
    """An error of this type, whose message matches."""

    kind: type[Exception]
    match: str


@dataclass(frozen=True)
class Answers:
    """No error: the answer in words, and a check of it."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Cell:
    """One function with one kind of bad input."""

    function: str
    kind: str
    call: Callable[[], Any]
    expected: Raises | Answers

    def executed(self) -> str:
        """What happens, in words; an AssertionError where that is not what is expected."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", RobustMFWarning)
            try:
                answer = self.call()
            except Exception as error:
                if not isinstance(self.expected, Raises) or type(error) is not self.expected.kind:
                    raise AssertionError(
                        f"{type(error).__name__}: {error}, but {self.expected} was expected"
                    ) from error
                assert re.search(self.expected.match, str(error)), (
                    f"the message {str(error)!r} does not match {self.expected.match!r}"
                )
                return f"`{type(error).__name__}`: {' '.join(str(error).split())}"
        assert isinstance(self.expected, Answers), f"no error, but {self.expected} was expected"
        assert self.expected.holds(answer), f"{answer!r} is not: {self.expected.words}"
        return self.expected.words


# --- what there is to ask ---------------------------------------------------------------------------------------------------------------

M, N = 12, 9


@cache
def matrix() -> Any:
    """Good data, by numbers."""
    rng = np.random.default_rng(0)
    X = np.outer(rng.uniform(1, 2, M), rng.uniform(1, 2, N)) + 0.01 * rng.standard_normal((M, N))
    X[0, 0] = np.nan
    return X


@cache
def table() -> Observed:
    """The same with ids."""
    i, j = np.nonzero(~np.isnan(matrix()))
    return Observed.from_triplets(
        row=[f"u{k:02}" for k in i], col=[f"i{k}" for k in j], value=matrix()[i, j]
    )


@cache
def fitted(ids: bool = False, bias: bool = False) -> RobustMF:
    """A good model."""
    return RobustMF(rank=1, bias=bias, random_state=0, n_jobs=1).fit(table() if ids else matrix())


def fresh(**given: Any) -> RobustMF:
    """A model that was not fitted."""
    return RobustMF(rank=1, random_state=0, n_jobs=1, **given)


def partly() -> RobustMF:
    """A fitted model of its own, to be changed."""
    return fresh().fit(matrix())


class NotATable:
    """An object of a library that nobody knows."""


def _ids(rows: list[Any]) -> Callable[[], Observed]:
    return lambda: Observed.from_triplets(row=rows, col=["a"] * len(rows), value=[1.0] * len(rows))


def _new(array: Any) -> Callable[[], Any]:
    return lambda: array


_nan = np.full((3, N), np.nan)

#: Kinds of bad matrices, for functions of fitted and of new rows: how to make one, and what is expected of a function that takes it.
MATRICES: dict[str, tuple[Callable[[], Any], Raises]] = {
    "no rows": (_new(np.empty((0, N))), Raises(ValueError, "X must have rows and columns")),
    "one dimension": (_new(np.ones(N)), Raises(ValueError, "Expected 2D array")),
    "text": (
        _new(np.full((3, N), "x")),
        Raises(TypeError, "X must hold real numbers, got dtype <U1"),
    ),
    "objects": (_new(np.full((3, N), None)), Raises(ValueError, "at least one observed entry")),
    "complex": (_new(np.ones((3, N), complex)), Raises(ValueError, "Complex data not supported")),
    "infinity": (_new(np.full((3, N), np.inf)), Raises(ValueError, "values must be finite")),
    "too large": (_new(np.full((3, N), 1e80)), Raises(ValueError, "X has values of size 1e[+]80")),
    "all missing": (_new(_nan), Raises(ValueError, "at least one observed entry")),
    "wrong number of columns": (
        _new(np.ones((3, N + 1))),
        Raises(ValueError, f"X has {N + 1} features"),
    ),
    "sparse with repeated places": (
        lambda: sp.coo_array((np.ones(2), ([0, 0], [1, 1])), (3, N)),
        Raises(DuplicateEntryError, "duplicate entry at row 0, column 1"),
    ),
    "sparse with padding (dia)": (
        lambda: sp.dia_array(np.eye(3, N)),
        Raises(ValueError, "dia format, which stores zeros"),
    ),
    "not a table": (
        _new(NotATable()),
        Raises(TypeError, "X must hold real numbers, got an object array"),
    ),
    "None": (_new(None), Raises(ValueError, "Expected 2D array")),
    "ids where the fit had none": (
        table,
        Raises(
            ValueError, "X has ids, but the fit had none|by indices so far, by ids in this batch"
        ),
    ),
}

_FINITE = Answers(
    "the answer, finite", lambda answer: bool(np.isfinite(np.asarray(answer, float)).all())
)
_FITS = Answers("a fit", lambda answer: isinstance(answer, RobustMF) or np.isfinite(answer).all())
_ZEROS = Answers(
    "zeros: nothing is known of such rows", lambda answer: not np.asarray(answer).any()
)
_NOTHING = Answers("no scores, as there are no entries", lambda answer: len(answer) == 0)
_SHAPE = Raises(ValueError, "X must have the shape of the fitted matrix")

#: Functions of a matrix, and where their answer differs from the usual one for the kind.
_OF_MATRICES: dict[str, tuple[Callable[[Any], Any], dict[str, Raises | Answers]]] = {
    "RobustMF.fit": (
        lambda X: fresh().fit(X),
        {"wrong number of columns": _FITS, "ids where the fit had none": _FITS},
    ),
    "RobustMF.fit_transform": (
        lambda X: fresh().fit_transform(X),
        {"wrong number of columns": _FITS, "ids where the fit had none": _FITS},
    ),
    "RMFNL.fit": (
        lambda X: RMFNL(1, n_jobs=1).fit(X),
        {"wrong number of columns": _FITS, "ids where the fit had none": _FITS},
    ),
    "RobustMF.partial_fit": (lambda X: partly().partial_fit(X), {}),
    "RobustMF.transform": (lambda X: fitted().transform(X), {"all missing": _ZEROS}),
    "RobustMF.predict (rows)": (
        lambda X: fitted().predict(X),
        {
            "all missing": _ZEROS,
            "sparse with repeated places": Raises(
                TypeError, "predict of a whole sparse matrix would be a dense one"
            ),
            "sparse with padding (dia)": Raises(
                TypeError, "predict of a whole sparse matrix would be a dense one"
            ),
            "ids where the fit had none": Raises(
                TypeError, "predict of a whole sparse matrix would be a dense one"
            ),
        },
    ),
    "RobustMF.score": (lambda X: fitted().score(X), {}),
    "RobustMF.score (fitted rows)": (
        lambda X: fitted().score(X, rows="fitted"),
        {"wrong number of columns": _SHAPE},
    ),
    "RobustMF.entry_weights": (
        lambda X: fitted().entry_weights(X),
        {"wrong number of columns": _SHAPE},
    ),
    "RobustMF.outlier_scores": (
        lambda X: fitted().outlier_scores(X),
        {"wrong number of columns": _SHAPE, "None": _FINITE},
    ),
    "RobustMF.outlier_scores (new rows)": (
        lambda X: fitted().outlier_scores(X, rows="new"),
        {
            "all missing": _NOTHING,
            "None": Raises(ValueError, "rows='new' needs X"),
        },
    ),
    "RobustMF.row_scores": (
        lambda X: fitted().row_scores(X),
        {"wrong number of columns": _SHAPE, "None": _FINITE},
    ),
    "RobustMF.column_scores": (
        lambda X: fitted().column_scores(X),
        {"wrong number of columns": _SHAPE, "None": _FINITE},
    ),
    "RobustMF.audit": (
        lambda X: [s.score for s in fitted().audit(X).entries],
        {"wrong number of columns": _SHAPE, "None": _FINITE},
    ),
    "RobustMF.memory_estimate": (
        lambda X: fresh().memory_estimate(X),
        {
            "wrong number of columns": _FINITE,
            "ids where the fit had none": _FINITE,
            "too large": _FINITE,
            "None": Raises(ValueError, "memory_estimate needs X"),
        },
    ),
    "selection.entry_split": (
        lambda X: [part.n_entries for part in selection.entry_split(X, (1, 1), 0)],
        {
            "wrong number of columns": _FINITE,
            "ids where the fit had none": _FINITE,
            "too large": _FINITE,
        },
    ),
    "selection.entry_train_test_split": (
        lambda X: [part.n_entries for part in selection.entry_train_test_split(X, random_state=0)],
        {
            "wrong number of columns": _FINITE,
            "ids where the fit had none": _FINITE,
            "too large": _FINITE,
        },
    ),
    "selection.EntryKFold.split": (
        lambda X: [part.n_entries for part, _ in selection.EntryKFold(2, random_state=0).split(X)],
        {
            "wrong number of columns": _FINITE,
            "ids where the fit had none": _FINITE,
            "too large": _FINITE,
        },
    ),
    "selection.RobustMFCV.fit": (
        lambda X: selection.RobustMFCV([1], cv=2, random_state=0).fit(X).best_score_,
        {
            "wrong number of columns": _FINITE,
            "ids where the fit had none": _FINITE,
        },
    ),
    "intervals.ConformalIntervals": (
        lambda X: ConformalIntervals(fitted(), X),
        {"wrong number of columns": _SHAPE},
    ),
    **{
        f"baselines.{name}.fit": (
            lambda X, name=name: np.asarray(
                getattr(baselines, name)(1, max_iter=2, n_jobs=1, random_state=0)
                .fit(X)
                .row_factors_
            ),
            {"wrong number of columns": _FINITE, "ids where the fit had none": _FINITE},
        )
        for name in baselines.__all__
        if name != "Baseline"
    },
}


def _unknown(name: str) -> Answers:
    return Answers(
        f"the answer for an unknown id: {name}",
        lambda answer: bool(np.isfinite(np.asarray(answer, float)).all()),
    )


def _id_cells() -> Iterator[Cell]:
    """Functions of ids."""
    asks: dict[str, tuple[Callable[[Any], Any], Answers | Raises]] = {
        "RobustMF.predict": (
            lambda ids: fitted(True).predict(ids, "i1"),
            _unknown("`median_`, or the biases where there are some"),
        ),
        "RobustMF.recommend": (
            lambda ids: fitted(True).recommend(ids),
            Raises(ValueError, "a model without biases cannot rank columns"),
        ),
        "RobustMF.similar_items": (
            lambda ids: fitted(True).similar_items(ids),
            Raises(ValueError, "items must be known to the fit"),
        ),
        "intervals.ConformalIntervals.predict": (
            lambda ids: _intervals().predict(ids, "i1"),
            Raises(ValueError, "rows and columns must be known to the fit"),
        ),
        "selection.RobustMFCV.predict": (
            lambda ids: _search().predict(ids, "i1"),
            _unknown("as `RobustMF.predict`"),
        ),
    }
    for function, (ask, unknown) in asks.items():
        yield Cell(function, "unknown id", lambda ask=ask: ask("nobody"), unknown)
        yield Cell(
            function,
            "id of another type",
            lambda ask=ask: ask([3]),
            Raises(TypeError, "ids were of type str in fit"),
        )
        yield Cell(
            function,
            "missing id",
            lambda ask=ask: ask(["u01", None]),
            Raises(ValueError, "ids must not be missing, got None"),
        )
        yield Cell(
            function,
            "NaN id",
            lambda ask=ask: ask([float("nan")]),
            Raises(ValueError, "ids must not be missing, got nan"),
        )
        yield Cell(
            function,
            "id that cannot be one",
            lambda ask=ask: ask([["u01"]]),
            Raises(TypeError, "ids must be hashable"),
        )
    numbers: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "RobustMF.predict": ("rows", lambda rows: fitted().predict(rows, [0])),
        "RobustMF.recommend": ("users", lambda rows: fitted().recommend(rows)),
        "RobustMF.similar_items": ("items", lambda rows: fitted().similar_items(rows)),
        **{
            f"baselines.{name}.predict": (
                "rows",
                lambda rows, name=name: _baseline(name).predict(rows, [0]),
            )
            for name in baselines.__all__
            if name != "Baseline"
        },
    }
    for function, (argument, ask) in numbers.items():
        yield Cell(
            function,
            "number out of range",
            lambda ask=ask: ask([99]),
            Raises(ValueError, f"{argument} must lie in 0 …"),
        )
        yield Cell(
            function,
            "negative number",
            lambda ask=ask: ask([-1]),
            Raises(ValueError, f"{argument} must lie in 0 …"),
        )
        yield Cell(
            function,
            "number with a fraction",
            lambda ask=ask: ask([0.5]),
            Raises(TypeError, f"{argument} must be integers"),
        )
        yield Cell(
            function,
            "text for a number",
            lambda ask=ask: ask(["x"]),
            Raises(TypeError, f"{argument} must be integers"),
        )


@cache
def _baseline(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        return getattr(baselines, name)(1, max_iter=2, n_jobs=1, random_state=0).fit(
            np.nan_to_num(matrix(), nan=1.0)
        )


@cache
def _intervals() -> ConformalIntervals:
    train, held = selection.entry_train_test_split(table(), 0.3, 0)
    return ConformalIntervals(fresh(bias=False).fit(train), held)


@cache
def _search() -> selection.RobustMFCV:
    return selection.RobustMFCV([1], estimator=fresh(bias=False), cv=2, random_state=0).fit(table())


def _unfitted_cells() -> Iterator[Cell]:
    """Use before fit."""
    asks: dict[str, Callable[[], Any]] = {
        "RobustMF.transform": lambda: fresh().transform(matrix()),
        "RobustMF.inverse_transform": lambda: fresh().inverse_transform(np.ones((1, 1))),
        "RobustMF.predict": lambda: fresh().predict([0], [0]),
        "RobustMF.score": lambda: fresh().score(matrix()),
        "RobustMF.recommend": lambda: fresh().recommend(0),
        "RobustMF.similar_items": lambda: fresh().similar_items(0),
        "RobustMF.entry_weights": lambda: fresh().entry_weights(matrix()),
        "RobustMF.outlier_scores": lambda: fresh().outlier_scores(),
        "RobustMF.row_scores": lambda: fresh().row_scores(),
        "RobustMF.column_scores": lambda: fresh().column_scores(),
        "RobustMF.audit": lambda: fresh().audit(),
        "RobustMF.save": lambda: fresh().save("m"),
        "RobustMF.report": lambda: fresh().report("p.html"),
        "RobustMF.get_feature_names_out": lambda: fresh().get_feature_names_out(),
        "intervals.ConformalIntervals": lambda: ConformalIntervals(fresh(), matrix()),
        "selection.RobustMFCV.predict": lambda: selection.RobustMFCV().predict([0], [0]),
        "selection.RobustMFCV.transform": lambda: selection.RobustMFCV().transform(matrix()),
        "selection.RobustMFCV.inverse_transform": lambda: selection.RobustMFCV().inverse_transform(
            np.ones((1, 1))
        ),
        "selection.RobustMFCV.score": lambda: selection.RobustMFCV().score(matrix()),
        **{
            f"baselines.{name}.predict": lambda name=name: getattr(baselines, name)(1).predict(
                [0], [0]
            )
            for name in baselines.__all__
            if name != "Baseline"
        },
    }
    for function, call in asks.items():
        yield Cell(
            function, "not fitted", call, Raises(NotFittedError, "not fitted yet|has no model")
        )
    yield Cell(
        "RobustMF.partial_fit",
        "not fitted",
        lambda: fresh().partial_fit(matrix()),
        Answers("as `fit`", lambda a: hasattr(a, "theta_")),
    )


def _triplets(data: Any = None, **changed: Any) -> Callable[[], Observed]:
    return lambda: Observed.from_triplets(
        data, **{"row": ["a", "b"], "col": ["x", "y"], "value": [1.0, 2.0]} | changed
    )


def _entry_cells() -> Iterator[Cell]:
    """Observed's constructors."""
    columns = {"user": ["a", "b"], "item": ["x", "y"], "rating": [1.0, 2.0]}
    by_name = {"row": "user", "col": "item", "value": "rating"}

    def pandas() -> Any:
        import pandas as pd  # noqa: PLC0415 - a test of tables

        return pd.DataFrame(columns)

    def polars() -> Any:
        import polars as pl  # noqa: PLC0415 - a test of tables

        return pl.DataFrame({**columns, "rating": [1.0, None]})

    twice = {"row": ["a", "a"], "col": ["x", "x"]}
    one_entry = Answers("one entry, the mean", lambda made: made.rows.values.tolist() == [1.5])
    both = Answers("entries in the order of the ids", lambda made: list(made.row_ids) == ["a", "b"])
    yield from (
        Cell("Observed.from_triplets", kind, call, expected)
        for kind, call, expected in (
            (
                "ids of mixed types",
                _triplets(row=["7", 7]),
                Raises(ValueError, "an id of mixed types"),
            ),
            (
                "NaN id",
                _triplets(row=[1.0, float("nan")]),
                Raises(ValueError, "row ids must not be missing, got nan at position 1"),
            ),
            (
                "missing id",
                _triplets(col=["x", None]),
                Raises(ValueError, "col ids must not be missing, got None at position 1"),
            ),
            (
                "id that cannot be one",
                _triplets(row=[["a"], ["b"]]),
                Raises(TypeError, "row ids must be hashable"),
            ),
            (
                "column missing from the frame",
                _triplets(columns, **by_name | {"row": "who"}),
                Raises(ValueError, "row='who' is not"),
            ),
            (
                "values of text",
                _triplets(value=["1", "x"]),
                Raises(TypeError, "values must hold real numbers, got dtype <U1"),
            ),
            (
                "values missing",
                lambda: Observed.from_triplets(polars(), **by_name),
                Raises(ValueError, "values must not be missing"),
            ),
            (
                "NaN values",
                _triplets(value=[1.0, float("nan")]),
                Raises(ValueError, "values must be finite, got nan"),
            ),
            ("unsorted rows", _triplets(row=["b", "a"]), both),
            (
                "repeated places",
                _triplets(**twice),
                Raises(DuplicateEntryError, "duplicate entry at row 'a', column 'x'"),
            ),
            (
                "repeated places, duplicates='mean'",
                _triplets(**twice, duplicates="mean"),
                one_entry,
            ),
            (
                "wrong policy",
                _triplets(duplicates="sum"),
                Raises(ValueError, "duplicates must be 'error', 'last' or 'mean'"),
            ),
            (
                "not a table",
                _triplets(data=NotATable(), **by_name),
                Raises(TypeError, "data must be a table .pandas, polars, Arrow"),
            ),
            (
                "names without a table",
                _triplets(row="user"),
                Raises(TypeError, "names of columns require the table as data"),
            ),
            ("frame of any library", lambda: Observed.from_triplets(pandas(), **by_name), both),
            (
                "columns of different lengths",
                _triplets(value=[1.0]),
                Raises(ValueError, "must be 1-dimensional and of the same length"),
            ),
            (
                "nothing",
                _triplets(row=[], col=[], value=[]),
                Raises(ValueError, "X must have rows and columns"),
            ),
        )
    )
    places: dict[str, tuple[tuple[Any, ...], Raises]] = {
        "numbers of the wrong type": (
            ([0.0], [0], [1.0]),
            Raises(TypeError, "rows must be an array of integers, got dtype float64"),
        ),
        "negative numbers": (([-1], [0], [1.0]), Raises(ValueError, "rows must lie in 0 …")),
        "numbers beyond the shape": (
            ([5], [0], [1.0], (2, 2)),
            Raises(ValueError, "rows must lie in 0 … 1 for shape"),
        ),
        "numbers beyond 32 bits": (
            ([2**40], [0], [1.0]),
            Raises(ValueError, "at most 2147483647 rows and columns"),
        ),
        "values of text": (([0], [0], ["x"]), Raises(TypeError, "values must hold real numbers")),
        "repeated places": (
            ([0, 0], [0, 0], [1.0, 2.0]),
            Raises(DuplicateEntryError, "duplicate entry at row 0, column 0"),
        ),
        "wrong shape": (([0], [0], [1.0], (2, 2, 2)), Raises(ValueError, "shape must be a pair")),
        "shape of text": (([0], [0], [1.0], "ab"), Raises(TypeError, "shape must be a pair")),
    }
    for kind, (given, expected) in places.items():
        yield Cell(
            "Observed.from_indices",
            kind,
            lambda given=given: Observed.from_indices(*given),
            expected,
        )
    for kind in (
        "no rows",
        "one dimension",
        "text",
        "objects",
        "complex",
        "infinity",
        "all missing",
        "not a table",
        "None",
    ):
        make, expected = MATRICES[kind]
        yield Cell(
            "Observed.from_dense", kind, lambda make=make: Observed.from_dense(make()), expected
        )
    for kind in ("sparse with repeated places", "sparse with padding (dia)"):
        make, expected = MATRICES[kind]
        yield Cell(
            "Observed.from_sparse", kind, lambda make=make: Observed.from_sparse(make()), expected
        )
    yield Cell(
        "Observed.from_sparse",
        "not sparse",
        lambda: Observed.from_sparse(np.ones((2, 2))),
        Raises(TypeError, "X must be a SciPy sparse"),
    )
    yield Cell(
        "Observed.with_values",
        "wrong length",
        lambda: table().with_values([1.0]),
        Raises(ValueError, "values must have one number per entry"),
    )
    yield Cell(
        "Observed.select",
        "mask of the wrong length",
        lambda: table().select(np.ones(3, bool)),
        Raises(ValueError, "mask must be one bool per entry"),
    )
    yield Cell(
        "Observed.select",
        "mask of the wrong type",
        lambda: table().select(np.arange(table().n_entries)),
        Raises(TypeError, "mask must be one bool per entry"),
    )


def _file_cells() -> Iterator[Cell]:
    """Files: those of models and those of entries."""

    def with_file(name: str, content: bytes, ask: Callable[[Path], Any]) -> Callable[[], Any]:
        def call() -> Any:
            with tempfile.TemporaryDirectory(prefix="robustmf-") as folder:
                path = Path(folder) / name
                path.write_bytes(content)
                return ask(path)

        return call

    yield Cell(
        "load",
        "no such file",
        lambda: robustmf.load("/nowhere/model.rmf"),
        Raises(FileNotFoundError, "/nowhere/model.rmf"),
    )
    yield Cell(
        "load",
        "another kind of file",
        with_file("m.rmf", b"hello", robustmf.load),
        Raises(ModelFileError, "not a model file, or truncated"),
    )
    yield Cell(
        "load",
        "a folder",
        lambda: robustmf.load(tempfile.gettempdir()),
        Raises(IsADirectoryError, "tmp"),
    )
    yield Cell(
        "RobustMF.save",
        "no such folder",
        lambda: fitted().save("/nowhere/m.rmf"),
        Raises(FileNotFoundError, "/nowhere"),
    )
    yield Cell(
        "RobustMF.save",
        "a callback",
        lambda: fresh(callbacks=[lambda _: None]).fit(matrix()).save("m.rmf"),
        Raises(NotSavableError, "cannot save parameter callbacks"),
    )
    read = reading.read_ratings
    yield Cell(
        "reading.read_ratings",
        "no such file",
        lambda: read("/nowhere/a.csv"),
        Raises(FileNotFoundError, "/nowhere/a.csv"),
    )
    texts = {
        "empty file": (b"", "the file is empty"),
        "a line too short": (b"u,i,r\na,x,1\nb,y\n", "line 3: expected 3 fields"),
        "a value of text": (b"u,i,r\na,x,1\nb,y,z\n", "line 3: value 'z' is not a finite number"),
        "repeated places": (b"u,i,r\na,x,1\na,x,2\n", "duplicate entry"),
        "not text": (bytes(range(256)), "no delimiter gives three fields"),
    }
    for kind, (content, match) in texts.items():
        yield Cell(
            "reading.read_ratings",
            kind,
            with_file("a.csv", content, read),
            Raises(MalformedFileError, match),
        )
    market = (
        b"%%MatrixMarket matrix coordinate real general\n1000000 1000000 1000000000000\n1 1 1.0\n"
    )
    yield Cell(
        "reading.read_ratings",
        "a claim of 10¹² entries",
        with_file("a.mtx", market, read),
        Raises(MalformedFileError, "claims at least 6e[+]12 bytes"),
    )
    yield Cell(
        "reading.read_ratings",
        "wrong precision",
        lambda: read("a.csv", dtype="int8"),
        Raises(ValueError, "dtype must be 'float64' or 'float32'"),
    )
    yield Cell(
        "reading.guess_layout",
        "column missing from the file",
        with_file("a.csv", b"u,i,r\na,x,1\n", lambda path: reading.guess_layout(path, row="who")),
        Raises(ValueError, "row='who' is not a column; the header names"),
    )


def _made_data_cells() -> Iterator[Cell]:
    """Data that are made up."""
    yield Cell(
        "datasets.make_synthetic",
        "rank above size",
        lambda: datasets.make_synthetic(5, rank=9),
        Raises(ValueError, "rank must be at most min.m, n."),
    )
    yield Cell(
        "datasets.make_synthetic",
        "share above 1",
        lambda: datasets.make_synthetic(50, outliers=2.0),
        Raises(ValueError, "outliers must lie in"),
    )
    yield Cell(
        "datasets.make_synthetic",
        "size with a fraction",
        lambda: datasets.make_synthetic(50.5),
        Raises(TypeError, "m must be an integer"),
    )
    yield Cell(
        "datasets.make_synthetic",
        "NaN noise",
        lambda: datasets.make_synthetic(50, noise=float("nan")),
        Raises(ValueError, "noise must be >= 0"),
    )
    yield Cell(
        "datasets.make_tracks",
        "too few points",
        lambda: datasets.make_tracks(3),
        Raises(ValueError, "points must be an integer >= 4"),
    )
    yield Cell(
        "datasets.make_tracks",
        "size with a fraction",
        lambda: datasets.make_tracks(50.5),
        Raises(TypeError, "points must be an integer"),
    )
    yield Cell(
        "datasets.make_tracks",
        "share above 1",
        lambda: datasets.make_tracks(mismatches=2),
        Raises(ValueError, "mismatches must lie in"),
    )
    yield Cell(
        "datasets.make_tracks",
        "NaN noise",
        lambda: datasets.make_tracks(noise=float("nan")),
        Raises(ValueError, "noise must be >= 0"),
    )


def _other_cells() -> Iterator[Cell]:
    """Parameters, factors, measures, data sets, attacks."""
    for kind, given, expected in (
        ("rank 0", {"rank": 0}, Raises(ValueError, "rank must be an integer from 1 to 9 = min")),
        (
            "rank too large",
            {"rank": 99},
            Raises(ValueError, "rank must be an integer from 1 to 9 = min"),
        ),
        (
            "rank of another type",
            {"rank": 1.5},
            Raises(TypeError, "rank must be an integer from 1 to 9"),
        ),
        ("unknown loss", {"loss": "l3"}, Raises(ValueError, "loss must be one of")),
        (
            "negative theta",
            {"theta": -1.0},
            Raises(ValueError, "theta must be a finite number > 0"),
        ),
        ("reg of text", {"reg": "much"}, Raises(TypeError, "reg must be a finite number > 0")),
        ("unknown solver", {"solver": "sgd"}, Raises(ValueError, "solver must be")),
        (
            "unknown init",
            {"init": "zeros"},
            Raises(ValueError, "init must be 'auto', 'ridge', 'random'"),
        ),
        ("unknown device", {"device": "tpu"}, Raises(ValueError, "device must be")),
        ("n_jobs 0", {"n_jobs": 0}, Raises(ValueError, "n_jobs must be a positive integer")),
        (
            "bounds upside down",
            {"bounds": (5, 1)},
            Raises(ValueError, "bounds must be .low, high. with low < high"),
        ),
        (
            "random_state of text",
            {"random_state": "x"},
            Raises(TypeError, "random_state must be None, an integer"),
        ),
        (
            "a loss that mm cannot take",
            {"solver": "mm", "loss": "l2"},
            Raises(ValueError, "concave"),
        ),
    ):
        yield Cell(
            "RobustMF.fit",
            kind,
            lambda given=given: RobustMF(**{"rank": 1, "n_jobs": 1} | given).fit(matrix()),
            expected,
        )
    for kind, weights, expected in (
        (
            "weights of the wrong length",
            [1.0],
            Raises(ValueError, "weights must have one number per observed entry"),
        ),
        (
            "negative weights",
            -np.ones((M, N)),
            Raises(ValueError, "weights must be finite, >= 0 and not all 0"),
        ),
        ("weights of text", np.full((M, N), "x"), Raises(TypeError, "weights must hold numbers")),
    ):
        yield Cell(
            "RobustMF.fit",
            kind,
            lambda weights=weights: fresh().fit(matrix(), weights=weights),
            expected,
        )
    for function, ask in (
        ("RobustMF.inverse_transform", lambda T: fitted().inverse_transform(T)),
        ("selection.RobustMFCV.inverse_transform", lambda T: _search().inverse_transform(T)),
    ):
        yield Cell(
            function,
            "wrong number of columns",
            lambda ask=ask: ask(np.ones((2, 4))),
            Raises(ValueError, r"T must have shape \(rows, 1\)"),
        )
        yield Cell(
            function,
            "text",
            lambda ask=ask: ask(np.full((2, 1), "x")),
            Raises(TypeError, "T must hold real numbers"),
        )
    yield Cell(
        "RobustMF.recommend",
        "n = 0",
        lambda: fitted().recommend(0, n=0),
        Raises(ValueError, "n must be an integer >= 1"),
    )
    yield Cell(
        "RobustMF.audit",
        "top = 0",
        lambda: fitted().audit(top=0),
        Raises(ValueError, "top must be an integer >= 1"),
    )
    yield Cell(
        "RobustMF.report",
        "tracks that are none",
        lambda: fitted().report("p.html", tracks=True),
        Raises(ValueError, "tracks"),
    )
    yield Cell(
        "RobustMF.transform",
        "columns that the fit did not know",
        lambda: fitted(True).transform(Observed.from_triplets(row=["n"], col=["new"], value=[1.0])),
        _ZEROS,
    )
    yield Cell(
        "selection.RobustMFCV.transform",
        "wrong number of columns",
        lambda: _search().transform(np.ones((2, 4))),
        Raises(ValueError, "X has 4 features"),
    )
    yield Cell(
        "selection.RobustMFCV.score",
        "all missing",
        lambda: _search().score(_nan),
        Raises(ValueError, "at least one observed entry"),
    )
    yield Cell(
        "selection.RobustMFCV.fit",
        "unknown scoring",
        lambda: selection.RobustMFCV([1], scoring="r2").fit(matrix()),
        Raises(ValueError, "scoring must be one of"),
    )
    yield Cell(
        "selection.entry_split",
        "negative share",
        lambda: selection.entry_split(matrix(), (1, -1)),
        Raises(ValueError, "shares must be two or more numbers > 0"),
    )
    yield Cell(
        "selection.entry_train_test_split",
        "share above 1",
        lambda: selection.entry_train_test_split(matrix(), 1.5),
        Raises(ValueError, "test_size must be below 1"),
    )
    yield Cell(
        "selection.EntryKFold",
        "one fold",
        lambda: selection.EntryKFold(1),
        Raises(ValueError, "n_splits must be an integer >= 2"),
    )
    yield Cell(
        "intervals.ConformalIntervals.predict",
        "level 1",
        lambda: _intervals().predict("u01", "i1", 1.0),
        Raises(ValueError, "level must be below 1"),
    )
    yield Cell(
        "intervals.ConformalIntervals",
        "entries of the fit",
        lambda: ConformalIntervals(fitted(), matrix()),
        Raises(ValueError, "entries that the model was not fitted to"),
    )
    for name, other in (
        ("rmse", "predicted"),
        ("mae", "predicted"),
        ("prediction_shift", "after"),
        ("paired_t_test", "second"),
    ):
        ask = getattr(metrics, name)
        yield Cell(
            f"metrics.{name}",
            "different lengths",
            lambda ask=ask: ask([1.0, 2.0], [1.0]),
            Raises(ValueError, f"and {other} must have the same number of values"),
        )
        yield Cell(
            f"metrics.{name}",
            "NaN",
            lambda ask=ask: ask([1.0, 2.0], [1.0, np.nan]),
            Raises(ValueError, f"{other} must be finite"),
        )
        yield Cell(
            f"metrics.{name}",
            "text",
            lambda ask=ask: ask([1.0, 2.0], ["a", "b"]),
            Raises(TypeError, f"{other} must hold numbers"),
        )
    for name in ("detection_auc", "detection_average_precision", "precision_at_k"):
        ask = getattr(metrics, name)
        yield Cell(
            f"metrics.{name}",
            "bad that is not bool",
            lambda ask=ask: ask([1, 0], [0.1, 0.2]),
            Raises(TypeError, "bad must be an array of bool"),
        )
        yield Cell(
            f"metrics.{name}",
            "all of one kind",
            lambda ask=ask: ask([True, True], [0.1, 0.2]),
            Raises(ValueError, "bad must contain both True and False"),
        )
        yield Cell(
            f"metrics.{name}",
            "NaN",
            lambda ask=ask: ask([True, False], [0.1, np.nan]),
            Raises(ValueError, "scores must not be NaN"),
        )
        yield Cell(
            f"metrics.{name}",
            "text",
            lambda ask=ask: ask([True, False], ["a", "b"]),
            Raises(TypeError, "scores must hold numbers"),
        )
    yield Cell(
        "metrics.hit_ratio",
        "targets out of range",
        lambda: metrics.hit_ratio([[1, 2]], [5], 1),
        Raises(ValueError, "targets its columns"),
    )
    yield Cell(
        "metrics.hit_ratio",
        "no targets",
        lambda: metrics.hit_ratio([[1, 2]], [], 1),
        Raises(ValueError, "targets its columns"),
    )
    yield Cell(
        "metrics.hit_ratio",
        "NaN",
        lambda: metrics.hit_ratio([[1, np.nan]], [0], 1),
        Raises(ValueError, "scores must not be NaN"),
    )
    yield Cell(
        "metrics.hit_ratio",
        "n = 0",
        lambda: metrics.hit_ratio([[1, 2]], [0], 0),
        Raises(ValueError, "n must be an integer >= 1"),
    )
    nowhere = {"folder": "/nowhere", "download": False}
    yield Cell(
        "datasets.load_movielens",
        "unknown name",
        lambda: datasets.load_movielens("3m"),
        Raises(ValueError, "name must be one of"),
    )
    yield Cell(
        "datasets.load_movielens",
        "files that are not there",
        lambda: datasets.load_movielens("10m", **nowhere),
        Raises(FileNotFoundError, "get movielens-10m from"),
    )
    yield Cell(
        "datasets.load_jester",
        "unknown part",
        lambda: datasets.load_jester(7),
        Raises(ValueError, "part must be 1, 2 or 3"),
    )
    yield Cell(
        "datasets.load_jester",
        "files that are not there",
        lambda: datasets.load_jester(3, **nowhere),
        Raises(FileNotFoundError, "get jester from"),
    )
    yield Cell(
        "datasets.load_netflix",
        "files that are not there",
        lambda: datasets.load_netflix("/nowhere"),
        Raises(FileNotFoundError, "get netflix from"),
    )
    yield Cell(
        "datasets.load_yahoo",
        "files that are not there",
        lambda: datasets.load_yahoo("/nowhere"),
        Raises(FileNotFoundError, "get yahoo from"),
    )
    for name in ("average_attack", "bandwagon_attack", "random_attack", "segment_attack"):
        ask = getattr(datasets, name)
        more = (ask, [1]) if name == "segment_attack" else (ask,)
        yield Cell(
            f"datasets.{name}",
            "targets out of range",
            lambda more=more: _attacked(*more)(table(), [99]),
            Raises(ValueError, "targets must be distinct column indices"),
        )
        yield Cell(
            f"datasets.{name}",
            "targets of text",
            lambda more=more: _attacked(*more)(table(), ["i1"]),
            Raises(TypeError, "targets must be column indices"),
        )
        yield Cell(
            f"datasets.{name}",
            "not Observed",
            lambda more=more: _attacked(*more)(matrix(), [0]),
            Raises(TypeError, "ratings must be Observed"),
        )
    yield Cell(
        "datasets.love_hate",
        "share above 1",
        lambda: datasets.love_hate(table(), share=2.0),
        Raises(ValueError, "share must be above 0"),
    )
    yield Cell(
        "datasets.love_hate",
        "bounds that do not contain the ratings",
        lambda: datasets.love_hate(table(), (0, 1)),
        Raises(ValueError, "do not contain the ratings"),
    )
    yield Cell(
        "datasets.love_hate",
        "not Observed",
        lambda: datasets.love_hate(matrix()),
        Raises(TypeError, "ratings must be Observed"),
    )


def _attacked(ask: Callable[..., Any], segment: list[int] | None = None) -> Callable[..., Any]:
    """The attack as a function of ratings and targets."""
    return ask if segment is None else lambda ratings, targets: ask(ratings, segment, targets)


def cells() -> list[Cell]:
    """The whole table, by function."""
    listed = [
        Cell(function, kind, lambda ask=ask, make=make: ask(make()), changed.get(kind, usual))
        for function, (ask, changed) in _OF_MATRICES.items()
        for kind, (make, usual) in MATRICES.items()
    ]
    for more in (
        _id_cells,
        _unfitted_cells,
        _entry_cells,
        _file_cells,
        _made_data_cells,
        _other_cells,
    ):
        listed.extend(more())
    return sorted(listed, key=lambda cell: cell.function)


def markdown() -> str:
    """The table for the documentation, as executed just now."""
    lines = ["| function | bad input | what happens |", "|---|---|---|"]
    before = ""
    for cell in cells():
        what = cell.executed().replace("|", "\\|").replace("<", "&lt;")
        what = re.sub(r"/\S*/robustmf-\w+/", "", what).replace(str(Path.home()), "~")
        what = what if len(what) <= 160 else what[:157] + "…"
        lines.append(
            f"| {f'`{cell.function}`' if cell.function != before else ''} | {cell.kind} | {what} |"
        )
        before = cell.function
    return "\n".join(lines)
