"""Cases: what a fitted model answers, selection, baselines, checkpoints and data sets."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable
from dataclasses import fields
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import robustmf
from benchmarks.same_results.cases import add, fit
from benchmarks.same_results.comparison import same_fields
from benchmarks.same_results.fits import exact, few_ratings
from benchmarks.same_results.library import (
    DTYPES,
    RANK,
    Array,
    clean_share,
    make_model,
    predict_pairs,
)
from benchmarks.same_results.problems import Plain, Root, as_dense, low_rank, ratings, some_factors
from robustmf import Observed, baselines, datasets, metrics
from robustmf.intervals import ConformalIntervals
from robustmf.selection import EntryKFold, RobustMFCV, entry_split, entry_train_test_split


@cache
def answering(name: str) -> tuple[Any, Observed]:
    """Fit one of the models that predict, and return it with its data."""
    models: dict[str, tuple[Callable[[], Observed], dict[str, Any]]] = {
        "plain": (partial(low_rank, 80, 50), {}),
        "float32": (partial(low_rank, 80, 50, dtype="float32"), {}),
        "bias": (partial(low_rank, 80, 50, offset=1.0), {"bias": True, "loss": "huber"}),
        "ratings": (partial(ratings, "float32"), {"bias": True, "bounds": (0.5, 5.0)}),
        "ids": (partial(ratings, "float64", "str"), {"bias": True, "bounds": (0.5, 5.0)}),
        "int-ids": (partial(ratings, "float64", "int"), {"bias": False, "loss": "huber"}),
        "by-count": (ratings, {"bias": True, "reg": 0.02, "reg_by_count": True, "loss": "huber"}),
        "nonsmooth": (partial(low_rank, 80, 50), {"loss": "lsp", "solver": "irls"}),
        "mm": (partial(low_rank, 80, 50), {"loss": "lsp", "solver": "mm"}),
        "varpro": (partial(low_rank, 100, 20), {"solver": "varpro"}),
        "least-squares": (partial(low_rank, 80, 50), {"loss": "l2", "bias": False}),
        "user-loss": (partial(low_rank, 80, 50), {"loss": Plain(0.5)}),
        "large": (partial(low_rank, 1200, 900, 5, share=0.21), {"rank": 5, "bias": True}),
    }
    data, settings = models[name]
    return fit(data(), **settings), data()


def new_rows(data: Observed) -> Any:
    """Make rows that a model has not seen: labelled where the data are, one of them empty."""
    n = data.shape[1]
    made = as_dense(low_rank(9, n, share=0.5, dtype=str(data.dtype), seed=8, outliers=0.1))
    made[4] = np.nan
    if data.column_ids is None:
        return made
    rows, columns = np.nonzero(~np.isnan(made))
    labels = list(data.column_ids)
    other = "unknown" if isinstance(labels[0], str) else -1
    named = [other if k == 0 else labels[k] for k in columns]
    return Observed.from_triplets(row=rows.tolist(), col=named, value=made[rows, columns])


def held_out(data: Observed) -> Observed:
    """Make entries at positions of the fitted matrix, in part those of the fit."""
    entries = sp.coo_array(data.to_sparse())
    rng = np.random.default_rng(9)
    m, n = data.shape
    positions = np.unique(
        np.concatenate(
            [rng.choice(m * n, 300, replace=False), entries.row[:50] * n + entries.col[:50]]
        )
    )
    i, j = np.divmod(positions, n)
    values = rng.standard_normal(len(positions)).astype(data.dtype)
    if data.row_ids is None:
        return Observed.from_indices(i, j, values, data.shape)
    rows = [data.row_ids[k] for k in i]
    columns = [data.column_ids[k] for k in j]
    return Observed.from_triplets(row=rows, col=columns, value=values)


def questions(data: Observed) -> tuple[list[Any], list[Any]]:
    """Return row and column labels (or numbers) for queries; labels may be unknown."""
    rng = np.random.default_rng(10)
    rows = rng.integers(data.shape[0], size=60).tolist()
    columns = rng.integers(data.shape[1], size=60).tolist()
    if data.row_ids is None:
        return rows, columns
    unknown = "nobody" if isinstance(data.row_ids[0], str) else -5
    return (
        [data.row_ids[k] for k in rows[:-3]] + [unknown] * 3,
        [data.column_ids[k] for k in columns[:-1]] + [unknown],
    )


def saved_and_loaded(model: Any, data: Observed) -> dict[str, Any]:
    """Return the answers of a model that was saved to a file and read again."""
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        loaded = robustmf.load(Path(folder) / "model")
    return {
        "model": loaded,
        "pairs": predict_pairs(loaded, *questions(data)),
        "transform": loaded.transform(new_rows(data)),
        "scores": loaded.outlier_scores(),
    }


def audited(model: Any, **options: Any) -> dict[str, Any]:
    """Return an audit: its fields, the numbers in its text, and the text."""
    audit = model.audit(**options)
    parts: dict[str, Any] = {"good_share": clean_share(audit)}
    for side in ("entries", "rows", "columns"):
        for k, suspect in enumerate(getattr(audit, side)):
            values = {part.name: getattr(suspect, part.name) for part in fields(suspect)}
            values.pop("reason", None)
            parts[f"{side}.{k}"] = values
    numbers = re.findall(r"(?<![\w'])-?\d[\d.,e+-]*", str(audit))
    return parts | {"numbers_in_text": numbers, "text.audit": str(audit)}


def matrix_prediction(model: Any, data: Observed) -> Array:
    """Predict every entry of dense rows."""
    return model.predict(as_dense(data)[:20])


METHODS: dict[str, Callable[[Any, Observed], Any]] = {
    "predict-pairs": lambda model, data: predict_pairs(model, *questions(data)),
    "predict-arrays": lambda model, data: predict_pairs(model, *map(np.array, questions(data))),
    "predict-matrix": matrix_prediction,
    "transform": lambda model, data: model.transform(new_rows(data)),
    "inverse-transform": lambda model, data: model.inverse_transform(
        model.transform(new_rows(data))
    ),
    "recommend": lambda model, data: model.recommend(questions(data)[0], 5),
    "recommend-one": lambda model, data: model.recommend(questions(data)[0][0], 200),
    "recommend-seen": lambda model, data: model.recommend(
        questions(data)[0], 7, exclude_seen=False
    ),
    "similar-items": lambda model, data: model.similar_items(questions(data)[1][:20], 6),
    "score-new": lambda model, data: model.score(new_rows(data)),
    "score-fitted": lambda model, data: model.score(held_out(data), rows="fitted"),
    "entry-weights": lambda model, data: model.entry_weights(held_out(data)),
    "outlier-scores": lambda model, data: model.outlier_scores(),
    "outlier-scores-others": lambda model, data: model.outlier_scores(held_out(data)),
    "outlier-scores-new": lambda model, data: model.outlier_scores(new_rows(data), rows="new"),
    "outlier-scores-attacks": lambda model, data: model.outlier_scores(attacks=True),
    "row-scores": lambda model, data: model.row_scores(),
    "row-scores-new": lambda model, data: model.row_scores(new_rows(data), rows="new"),
    "column-scores": lambda model, data: model.column_scores(),
    "column-scores-new": lambda model, data: model.column_scores(new_rows(data), rows="new"),
    "audit": lambda model, data: audited(model, top=5, at_most=0.05),
    "audit-new": lambda model, data: audited(model, X=new_rows(data), rows="new", top=5),
    "save": saved_and_loaded,
    "memory": lambda model, data: model.memory_estimate(data),
}


def add_answers() -> None:
    """Add every method of a fitted model, for models of every kind."""

    def answer(name: str, method: str) -> Any:
        return METHODS[method](*answering(name))

    names = (
        "plain",
        "float32",
        "bias",
        "ratings",
        "ids",
        "int-ids",
        "by-count",
        "nonsmooth",
        "mm",
        "varpro",
        "least-squares",
        "user-loss",
    )
    for name, method in product(names, METHODS):
        add(f"answers/{name}/{method}", partial(answer, name, method))
    for method in ("outlier-scores", "row-scores", "column-scores", "audit", "recommend"):
        add(f"answers/large/{method}", partial(answer, "large", method))
    sizes = {"shape": (10_000, 3_000), "n_entries": 400_000}
    for label, settings in {
        "default": {},
        "bias": {"bias": True},
        "validation": {"validation_fraction": 0.1},
        "ridge": {"init": "ridge", "solver": "irls"},
    }.items():
        add(
            f"answers/memory/{label}",
            lambda k=settings: [
                make_model(**k).memory_estimate(**sizes, dtype=dtype, source_bytes=12)
                for dtype in DTYPES
            ],
        )
    for bias in (True, False):
        data = partial(low_rank, offset=1.0)
        add(
            f"answers/fit-transform/bias-{bias}",
            lambda b=bias, d=data: make_model(bias=b).fit_transform(d()),
        )


def add_selection() -> None:
    """Add splits, cross-validation and prediction intervals."""
    for ids in ("none", "str"):
        add(
            f"selection/k-fold/{ids}",
            lambda i=ids: list(EntryKFold(3, random_state=0).split(ratings(ids=i))),
        )
    add("selection/split", lambda: entry_split(ratings(), (0.5, 0.3, 0.2), random_state=1))
    add("selection/train-test", lambda: entry_train_test_split(low_rank(), 0.2, random_state=2))

    def chosen(data: Callable[[], Observed], template: dict[str, Any], **settings: Any) -> Any:
        search = RobustMFCV(estimator=make_model(**template), random_state=0, cv=3, **settings).fit(
            data()
        )
        results = {
            name: values for name, values in search.cv_results_.items() if name.endswith("_score")
        }
        best = {name: str(value) for name, value in search.best_params_.items()}
        return {
            "results": results,
            "best": best,
            "best_score": search.best_score_,
            "model": search.best_estimator_,
            "score": search.score(held_out(data())),
        }

    add("selection/cv/rank", partial(chosen, low_rank, {}, rank=[1, 2, 3, 4]))
    add(
        "selection/cv/reg",
        partial(chosen, low_rank, {"bias": True}, rank=2, reg=["auto", 0.1, 1.0, 10.0]),
    )
    add(
        "selection/cv/theta",
        partial(
            chosen,
            low_rank,
            {},
            rank=3,
            theta=["auto", 0.3, 1.0],
            reg=[0.1, 0.5],
            scoring="trimmed",
        ),
    )
    add(
        "selection/cv/loss",
        partial(chosen, few_ratings, {}, rank=[1, 2], loss=["huber", "lsp", "l2"]),
    )
    add(
        "selection/cv/mm",
        partial(chosen, low_rank, {"solver": "mm", "max_iter": 10}, rank=[2, 3], loss="lsp"),
    )

    def intervals(data: Observed, **settings: Any) -> Any:
        train, rest = entry_train_test_split(data, 0.3, random_state=3)
        made = ConformalIntervals(fit(train, **settings), rest)
        rows, columns = (sp.coo_array(rest.to_sparse()).coords[side][:100] for side in (0, 1))
        found = {str(level): made.predict(rows, columns, level) for level in (0.5, 0.9, 0.99)}
        return {"good_share": clean_share(made)} | found

    add("intervals/plain", lambda: intervals(low_rank(80, 60)))
    add("intervals/float32", lambda: intervals(low_rank(80, 60, dtype="float32"), loss="lsp"))
    add(
        "intervals/ratings",
        lambda: intervals(ratings(), bias=True, bounds=(0.5, 5.0), loss="huber"),
    )
    add("intervals/mm", lambda: intervals(low_rank(80, 60), loss="lsp", solver="mm"))


def add_baselines() -> None:
    """Add every comparison system with few iterations."""
    start = some_factors(low_rank(), 6)
    systems: dict[str, tuple[str, dict[str, Any]]] = {
        "alt-grad": ("AltGrad", {"max_iter": 60}),
        "alt-grad-paper": ("AltGrad", {"max_iter": 30, "reg": "paper"}),
        "alt-grad-joint": ("AltGrad", {"max_iter": 60, "variant": "joint", "reg": 0.5}),
        "alt-grad-minibatch": ("AltGrad", {"max_iter": 10, "variant": "minibatch"}),
        "alt-impute": ("AltImpute", {"max_iter": 60}),
        "alt-impute-no-svd": ("AltImpute", {"max_iter": 30, "final_svd": False, "reg": 0.5}),
        "grasta": ("GRASTA", {"max_iter": 5}),
        "omdl": ("OMDL", {"max_iter": 5}),
        "omdl-detrend": ("OMDL", {"max_iter": 5, "detrend": True, "batch_size": 10}),
        "rmc": ("RMC", {"max_iter": 3}),
        "rmc-reg": ("RMC", {"max_iter": 3, "reg": 0.01, "inner_max_iter": 15}),
        "rmf-mm": ("RMFMM", {"max_iter": 6, "inner_max_iter": 60}),
        "rmf-mm-heuristic": ("RMFMM", {"max_iter": 10, "inner_max_iter": 60, "heuristic": True}),
        "rmf-mm-init": ("RMFMM", {"max_iter": 5, "inner_max_iter": 60, "init": start}),
        "rp": ("RP", {"max_iter": 60}),
        "rp-hestenes-stiefel": ("RP", {"max_iter": 60, "conjugacy": "hestenes-stiefel"}),
        "scaled-asd": ("ScaledASD", {"max_iter": 60}),
    }

    def result(system: str, data: Any, settings: dict[str, Any]) -> Any:
        model = make_model(kind=getattr(baselines, system), **settings).fit(data)
        rows, columns = np.indices((10, 10))
        return {"model": model, "predictions": model.predict(rows, columns)}

    for (label, (system, settings)), dtype in product(systems.items(), DTYPES):
        # stochastic gradients diverge on larger values
        scale = 0.3 if label == "alt-grad-minibatch" else 1.0
        made: dict[str, Callable[[], Any]] = {
            "": partial(low_rank, dtype=dtype, scale=scale),
            "/wide": partial(
                low_rank, 30, 90, outliers=0.0, offset=0.5, dtype=dtype, scale=scale, seed=4
            ),
            "/exact": lambda d=dtype, s=scale: (s * exact(60, 45)).astype(d),
        }
        for end, data in made.items():
            if end != "/wide" or "init" not in settings:
                name = f"baseline/{label}/{dtype}{end}"
                add(name, lambda s=system, d=data, k=settings: result(s, d(), k))


class LeaveError(Exception):
    """Raised by a callback to leave a fit."""


def add_checkpoints() -> None:
    """Add fits that are left in the middle and resumed from their checkpoints."""

    def leave(after: int) -> Callable[[Any], None]:
        def callback(snapshot: Any) -> None:
            if snapshot.iteration >= after:
                raise LeaveError

        return callback

    def resumed(data: Observed, **settings: Any) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint"
            with contextlib.suppress(LeaveError):
                make_model(callbacks=[leave(2)], **settings).fit(
                    data, checkpoint=path, checkpoint_every=0
                )
            model = make_model(**settings).fit(data, resume=path)
        undisturbed = fit(data, **settings)
        return {"model": model, "same_as_undisturbed": same_fields(model, undisturbed)}

    def finished(data: Observed, **settings: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint"
            fit_once = partial(make_model(**settings).fit, data, checkpoint=path)
            fit_once()
            return fit_once()

    ways: dict[str, dict[str, Any]] = {
        "irls": {"solver": "irls", "loss": "cauchy", "tol": 1e-5},
        "irls-nonsmooth": {"solver": "irls", "loss": "lsp"},
        "irls-bias": {"solver": "irls", "bias": True, "loss": "huber"},
        "irls-user-loss": {"solver": "irls", "loss": Root(0.5), "max_iter": 12},
        "mm": {"solver": "mm", "loss": "lsp", "max_iter": 10},
        "mm-gap": {"mm": {"gap": 0.1}, "loss": "geman", "max_iter": 6},
        "mm-apg-dense": {"mm": {"inner": "apg-dense"}, "loss": "lsp", "max_iter": 4},
        "mm-ladmpsap": {"mm": {"inner": "ladmpsap", "max_iter": 40}, "loss": "lsp", "max_iter": 4},
        "varpro": {"solver": "varpro", "tol": 1e-12, "max_iter": 12},
        "certify": {"loss": "l1", "certify": True, "max_iter": 6},
        "two-runs": {"solver": "irls", "n_init": 2, "init": "random", "loss": "huber"},
        "validation": {"validation_fraction": 0.1, "loss": "geman"},
    }
    for (label, settings), dtype in product(ways.items(), DTYPES):
        add(
            f"checkpoint/{label}/{dtype}",
            lambda d=dtype, s=settings: resumed(low_rank(dtype=d), **s),
        )
    for label in ("irls-bias", "mm", "two-runs", "certify"):
        name = f"checkpoint/finished/{label}"
        add(name, lambda s=ways[label]: finished(low_rank(), **s))


def add_datasets() -> None:
    """Add synthetic data, attacks and the inputs of the other cases."""
    synthetic: dict[str, dict[str, Any]] = {
        "default": {"m": 100},
        "wide": {"m": 40, "n": 90, "rank": 3, "observed": 0.5},
        "float32": {"m": 60, "dtype": "float32", "observed": 0.4},
        "clean": {"m": 50, "noise": 0.0, "outliers": 0.0, "observed": 0.6},
        "attacked": {"m": 50, "outliers": 0.2, "magnitude": 9.0, "observed": 0.6},
    }
    for label, settings in synthetic.items():
        add(
            f"datasets/synthetic/{label}",
            lambda s=settings: datasets.make_synthetic(**s, random_state=0),
        )

    def errors() -> dict[str, Any]:
        data = datasets.make_synthetic(60, rank=RANK, observed=0.5, random_state=1)
        model = fit(data.train)
        error = data.test_rmse(model.row_factors_, model.column_factors_)
        return {"test_rmse": error, "clean": data.clean, "test_mask": data.test_mask}

    add("datasets/synthetic/test-rmse", errors)
    add("datasets/tracks", lambda: datasets.make_tracks(60, random_state=0))
    add(
        "datasets/tracks/fit",
        lambda: fit(datasets.make_tracks(60, random_state=0).observed, rank=4, loss="l1"),
    )
    attacks: dict[str, Callable[[Observed], Any]] = {
        "love-hate": lambda data: datasets.love_hate(data, random_state=0),
        "love-hate-ratings": lambda data: datasets.love_hate(
            data, (0, 6), per="rating", share=0.1, random_state=1
        ),
        "random": lambda data: datasets.random_attack(data, random_state=0),
        "random-nuke": lambda data: datasets.random_attack(
            data, [3, 5], direction="nuke", random_state=1
        ),
        "average": lambda data: datasets.average_attack(data, random_state=0),
        "bandwagon": lambda data: datasets.bandwagon_attack(data, random_state=0),
        "bandwagon-nuke": lambda data: datasets.bandwagon_attack(
            data, direction="nuke", random_state=1
        ),
        "segment": lambda data: datasets.segment_attack(data, [1, 4, 9], random_state=0),
    }
    for (label, attack), ids in product(attacks.items(), ("none", "str", "int")):
        add(f"datasets/attack/{label}/{ids}", lambda a=attack, i=ids: a(ratings(ids=i)))

    def suspects(attack: Callable[[Observed], Any]) -> dict[str, Any]:
        data = attack(ratings(ids="str")).ratings
        model = fit(data, bias=True, loss="huber")
        return {"rows": model.row_scores(), "columns": model.column_scores()} | audited(
            model, at_most=0.1
        )

    for label in ("love-hate", "average", "bandwagon"):
        add(f"datasets/attack/{label}/audit", lambda a=attacks[label]: suspects(a))
    add(
        "inputs/low-rank", lambda: [low_rank(dtype=d, offset=o) for d in DTYPES for o in (0.0, 1.0)]
    )
    add("inputs/ratings", lambda: [ratings(ids=ids) for ids in ("none", "str", "int")])


def add_metrics() -> None:
    """Add the functions of ``robustmf.metrics``."""

    def values() -> dict[str, Any]:
        rng = np.random.default_rng(0)
        a, b = rng.standard_normal((2, 501))
        bad = rng.random(501) < 0.1
        scores = np.round(rng.standard_normal((250, 120)), 1)
        return {
            "rmse": metrics.rmse(a, b),
            "rmse-float32": metrics.rmse(a.astype(np.float32), b.astype(np.float32)),
            "mae": metrics.mae(a, b),
            "shift": metrics.prediction_shift(a, b),
            "hits": metrics.hit_ratio(scores, [3, 70], 10),
            "hits-unseen": metrics.hit_ratio(scores, [3, 70], 10, ratings()),
            "auc": metrics.detection_auc(bad, np.round(a, 1)),
            "average-precision": metrics.detection_average_precision(bad, a),
            "precision": metrics.precision_at_k(bad, np.round(a, 1)),
            "precision-20": metrics.precision_at_k(bad, np.round(a, 1), 20),
            "t-test": metrics.paired_t_test(a[:9], b[:9]),
            "t-test-constant": metrics.paired_t_test(a[:9], a[:9] + 1),
        }

    add("metrics", values)
