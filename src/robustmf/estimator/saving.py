"""Estimators in model files: their parameters, and the fitted model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from robustmf.data.table_form import TableForm
from robustmf.estimator.parameters import bounds_of
from robustmf.estimator.sklearn_interface import OUTPUT_CONFIG
from robustmf.exceptions import ModelFileError, NotSavableError
from robustmf.io.model_file import Saved, read, refusing, write
from robustmf.io.model_state import STATE_NAMES
from robustmf.model import FittedModel
from robustmf.solvers.mm.options import MM


def save(
    estimator: Any, model: FittedModel, path: str | os.PathLike[str], classes: Sequence[type]
) -> None:
    """Write an estimator of one of these classes; see :meth:`robustmf.RobustMF.save`."""
    if type(estimator) not in classes:
        raise NotSavableError(
            f"cannot save a {type(estimator).__qualname__}: a user-defined class is code; "
            "use pickle or joblib for it"
        )
    parameters = {
        name: {"MM": asdict(value)} if isinstance(value, MM) else value
        for name, value in estimator.get_params(deep=False).items()
    }
    others = {
        name: value
        for name, value in vars(estimator).items()
        if name not in parameters and name != "model_"
    }
    if model.form is not None:
        others["table_form"] = model.form.to_state()
    write(path, Saved(type(estimator).__name__, parameters, model.to_state() | others))


def load(path: str | os.PathLike[str], classes: Sequence[type]) -> Any:
    """The estimator that :func:`save` wrote, of one of these classes."""
    saved = read(path)
    with refusing(path):
        return _restore(saved, classes)


def _restore(saved: Saved, classes: Sequence[type]) -> Any:
    by_name: dict[str, Any] = {cls.__name__: cls for cls in classes}
    if saved.kind not in by_name:
        raise ModelFileError(f"it holds a {saved.kind!r}; this release knows {', '.join(by_name)}")
    cls = by_name[saved.kind]
    known = cls().get_params(deep=False)
    unknown = sorted(set(saved.parameters) - set(known))
    if unknown:
        raise ModelFileError(
            f"{saved.kind} has no parameters {unknown}; the file was saved by a later release: "
            "load it there, or fit again"
        )
    others = {name: value for name, value in saved.state.items() if name not in STATE_NAMES}
    reserved = sorted(name for name in others if name in known or _is_reserved(cls, name))
    if reserved:
        raise ModelFileError(f"{saved.kind} cannot have fitted attributes named {reserved}")
    output = others.get(OUTPUT_CONFIG, {})
    if not (isinstance(output, dict) and all(isinstance(kind, str) for kind in output.values())):
        raise ModelFileError(f"{OUTPUT_CONFIG} must be the settings of set_output")
    model = FittedModel.from_state(saved.state)
    if "table_form" in others:
        try:
            model = replace(model, form=TableForm.from_state(others.pop("table_form")))
        except ValueError as error:
            raise ModelFileError(str(error)) from None
    n_columns = others.get("n_features_in_")
    if n_columns != model.shape[1]:
        raise ModelFileError(f"n_features_in_ must be {model.shape[1]}, got {n_columns!r:.60}")
    names = others.get("feature_names_in_")
    if names is not None and not (
        isinstance(names, np.ndarray)
        and names.shape == (n_columns,)
        and all(isinstance(name, str) for name in names)
    ):
        raise ModelFileError(f"feature_names_in_ must hold {n_columns} strings")
    estimator = cls(**{name: _restore_parameter(value) for name, value in saved.parameters.items()})
    try:
        bounds_of(estimator, model.bounds)
    except (TypeError, ValueError) as error:
        raise ModelFileError(str(error)) from None
    estimator.model_ = model
    estimator.__dict__.update(others)
    return estimator


def _is_reserved(cls: type, name: str) -> bool:
    """Whether an attribute that is not a parameter cannot come from a file.

    Those that the class, Python or scikit-learn interpret could replace what was validated.
    """
    return (
        not name.isidentifier()
        or hasattr(cls, name)
        or name.startswith("__")
        or name in ("model_", "_metadata_request")
    )


def _restore_parameter(value: Any) -> Any:
    if not (isinstance(value, dict) and set(value) == {"MM"}):
        return value
    try:
        return MM(**value["MM"])
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"the options of MM are invalid: {error}") from error
