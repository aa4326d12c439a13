"""Saving and loading models: bitwise equal, atomic, and restricted to data."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load as from_safetensors
from safetensors.numpy import save as to_safetensors
from sklearn.exceptions import NotFittedError

import robustmf
from conftest import Root
from forged import drop, put, put_nan, reenter, refused, reshape, rewritten
from robustmf import RMFNL, Observed, RobustMF
from robustmf.data.factorization import Factorization
from robustmf.datasets import make_synthetic
from robustmf.exceptions import ModelFileError, NotSavableError
from robustmf.io.model_file import insert_checksum
from robustmf.losses import MCP, SCAD, Smoothed, loss_names, make_loss
from robustmf.model import FitSummary, FittedModel

DATA = make_synthetic(40, rank=2, observed=0.6, random_state=0)


def fitted(**parameters):
    parameters = {"rank": 2, "random_state": 0, "n_jobs": 1} | parameters
    return RobustMF(**parameters).fit(DATA.train)


MODEL = fitted(bias=True)


def assert_same(a, b):
    """Equal in type, dtype, shape and every bit."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        if a.dtype == object:
            assert_same(a.tolist(), b.tolist())
        else:
            assert a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert set(a) == set(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, (FittedModel, FitSummary, Factorization)):
        for part in dataclasses.fields(a):
            if part.compare:
                assert_same(getattr(a, part.name), getattr(b, part.name))
    elif isinstance(a, (np.random.Generator, np.random.RandomState)):
        assert a.bytes(64) == b.bytes(64)
    else:
        assert repr(a) == repr(b)
        assert a == b or a != a


def round_trip(model, folder):
    model.save(folder / "model.rmf")
    return robustmf.load(folder / "model.rmf")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bias", [False, True])
def test_round_trip_is_equal_bit_for_bit(tmp_path, dtype, bias):
    data = make_synthetic(40, rank=2, observed=0.6, dtype=dtype, random_state=0)
    model = RobustMF(2, bias=bias, random_state=0).fit(
        data.train, weights=np.linspace(0.5, 1, data.train.n_entries)
    )
    again = round_trip(model, tmp_path)
    assert_same(vars(model), {name: vars(again)[name] for name in vars(model)})
    assert set(vars(again)) == set(vars(model))
    assert_same(model.transform(data.validation), again.transform(data.validation))
    assert_same(model.entry_weights(data.train), again.entry_weights(data.train))
    assert np.shares_memory(again.components_, again.column_factors_)


@pytest.mark.parametrize("loss", loss_names())
def test_every_registered_loss_is_restored(tmp_path, loss):
    model = fitted()
    model.model_ = dataclasses.replace(model.model_, loss=make_loss(loss, 2.5))
    assert round_trip(model, tmp_path).loss_ == model.loss_


@pytest.mark.parametrize(
    "loss", [MCP(2.0, delta=0.2), SCAD(3.0), Smoothed(1.5, MCP(delta=0.3), smoothing=0.25)]
)
def test_parameters_of_a_loss_are_restored(tmp_path, loss):
    again = round_trip(fitted(loss=loss, max_iter=1000), tmp_path)
    assert again.loss == loss
    assert again.loss_ == loss
    assert (
        again.loss_.weight(np.array([0.3, 4.0])).tobytes()
        == loss.weight(np.array([0.3, 4.0])).tobytes()
    )


@pytest.mark.parametrize(
    "random_state",
    [
        None,
        7,
        np.random.default_rng(3),
        np.random.Generator(np.random.MT19937(1)),
        np.random.RandomState(2),
    ],
)
def test_parameters_are_restored(tmp_path, random_state):
    rng = np.random.default_rng(0)
    model = fitted(
        random_state=random_state,
        init=(rng.standard_normal((40, 2)), rng.standard_normal((40, 2))),
        reg=np.float32(0.1),
    )
    assert_same(model.get_params(), round_trip(model, tmp_path).get_params())


@pytest.mark.parametrize(
    "ids",
    [
        [3, 1, -(10**30)],
        ["a", "é", "\ud800", ""],
        [1.5, float("inf"), -0.0, 0.1],
        [True, False],
        [(1, "a"), (2, b"\x00")],
        [
            date(2020, 1, 2),
            datetime(2020, 1, 2, 3, 4, 5, 6),
            datetime(2020, 1, 2, tzinfo=UTC),
            timedelta(days=-2, microseconds=1),
        ],
        [UUID(int=5), Decimal("1.10"), 1 + 2j, "mixed", 7],
        [
            np.int32(4),
            np.float32(0.1),
            np.datetime64("2020-01-02T03:04:05.123456789"),
            np.bool_(True),
        ],
        np.array(["x", "yy"]),
        np.array([1, "two", None], object),
        np.array(["2020-01-01", "2021-01-01"], "M8[D]"),
        np.arange(3, dtype=">i4"),
    ],
    ids=lambda ids: type(ids[0]).__name__,
)
def test_ids_of_every_supported_type_are_restored(tmp_path, ids):
    model = fitted()
    model.labels_ = ids
    again = round_trip(model, tmp_path)
    if isinstance(ids, np.ndarray) and not ids.dtype.isnative:
        ids = ids.astype(ids.dtype.newbyteorder("="))
    assert_same(ids, again.labels_)


def test_code_is_refused_with_a_remedy(tmp_path):
    class Mine(RobustMF):
        pass

    class Id(int):
        pass

    path = tmp_path / "m"
    cases = [
        (fitted(loss=Root(0.5), max_iter=200), "a user-defined loss.*pickle or joblib"),
        (fitted(callbacks=[lambda _: None]), r"callbacks.*set_params\(callbacks=\(\)\)"),
        (Mine(2, random_state=0).fit(DATA.train), "Mine: a user-defined class"),
    ]
    odd = fitted()
    odd.labels_ = [Id(3)]
    for model, message in [*cases, (odd, "labels_.*Id.*convert it")]:
        with pytest.raises(NotSavableError, match=message):
            model.save(path)
        assert list(tmp_path.iterdir()) == []
    cases[1][0].set_params(callbacks=()).save(path)
    with pytest.raises(NotFittedError):
        RobustMF().save(path)


@pytest.mark.parametrize("through", ["pickle", "joblib"])
@pytest.mark.parametrize(
    "model",
    [MODEL, fitted(loss=Root(0.5), max_iter=200)],
    ids=["registered loss", "user-defined loss"],
)
def test_pickle_and_joblib_work_too(tmp_path, through, model):
    if through == "pickle":
        again = pickle.loads(pickle.dumps(model))
    else:
        joblib.dump(model, tmp_path / "m.joblib")
        again = joblib.load(tmp_path / "m.joblib")
    assert_same(vars(model), vars(again))
    assert_same(model.transform(DATA.validation), again.transform(DATA.validation))


def test_rmfnl_is_restored_as_rmfnl(tmp_path):
    assert type(round_trip(RMFNL(2, random_state=0).fit(DATA.train), tmp_path)) is RMFNL


def test_a_failed_save_keeps_the_previous_file(tmp_path, monkeypatch):
    path = tmp_path / "model.rmf"
    MODEL.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        fitted().save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_process_killed_while_saving_leaves_a_complete_file(tmp_path):
    path = tmp_path / "model.rmf"
    code = f"""
        import robustmf
        from robustmf.datasets import make_synthetic
        data = make_synthetic(40, rank=2, observed=0.6, random_state=0).train
        model = robustmf.RobustMF(2, random_state=0, n_jobs=1).fit(data)
        print("ready", flush=True)
        while True:
            model.save({str(path)!r})
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.001)
    time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert_same(robustmf.load(path).row_factors_, fitted().row_factors_)


def test_the_file_is_a_safetensors_file_with_default_permissions(tmp_path):
    path = tmp_path / "model.rmf"
    MODEL.save(path)
    (tmp_path / "other").write_bytes(b"")
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    document = json.loads(from_safetensors(path.read_bytes())["document"].tobytes())
    assert document["kind"] == "RobustMF"
    assert document["parameters"]["rank"] == 2


# Invalid files


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "model.rmf"
    fitted(bias=True).save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("broken") / "model.rmf"


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_altered_byte_is_refused(content, scratch, data):
    place = data.draw(st.one_of(st.integers(0, len(content) - 1), st.integers(0, 2000)))
    altered = bytearray(content)
    altered[place] ^= data.draw(st.integers(1, 255))
    refused(scratch, altered)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_other_length_is_refused(content, scratch, data):
    refused(scratch, content[: data.draw(st.integers(0, len(content) - 1))])
    refused(scratch, content + data.draw(st.binary(min_size=1, max_size=20)))


@settings(max_examples=200, deadline=None)
@given(noise=st.binary(max_size=300))
def test_noise_is_refused(scratch, noise):
    refused(scratch, noise)
    refused(scratch, len(noise).to_bytes(8, "little") + noise)


def with_valid_checksum(content):
    """Altered content with a checksum that is valid again."""
    at = content.index(b'"robustmf":"1 ') + 14
    altered = bytearray(content)
    altered[at : at + 64] = b"0" * 64
    return bytes(insert_checksum(altered))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_an_altered_file_with_a_valid_checksum_is_a_model_or_is_refused(content, scratch, data):
    at = content.index(b'"robustmf":"1 ') + 14
    place = data.draw(
        st.integers(0, len(content) - 1).filter(lambda k: not at - 14 <= k <= at + 64)
    )
    altered = bytearray(content)
    altered[place] = (
        data.draw(st.sampled_from([0, 255, *b'{}[]":,0123456789eE-+.nt ']))
        if data.draw(st.booleans())
        else altered[place] ^ 1
    )
    scratch.write_bytes(with_valid_checksum(bytes(altered)))
    try:
        model = robustmf.load(scratch)
    except ModelFileError:
        return
    assert np.isfinite(model.predict([0], [0])).all()
    model.recommend(0)
    model.transform(DATA.validation)


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (lambda document, arrays: document.update(kind="os.system"), "it holds a 'os.system'"),
        (lambda document, arrays: document.pop("state"), "must have kind, parameters and state"),
        (lambda document, arrays: arrays.update(more=np.ones(2)), "arrays that are not used"),
        (put("rank_of_mine", 3, "parameters"), "has no parameters"),
        (put("bounds", "outo", "parameters"), "bounds must be 'auto', None or a pair"),
        (put("fit", 3), "cannot have fitted attributes named"),
        (put("__class__", 3), "cannot have fitted attributes named"),
        (put("rank", 3), "cannot have fitted attributes named"),
        (put("loss_", {"loss": "root", "parameters": {"theta": 1.0}}), "cannot be read"),
        (put("loss_", {"loss": "welsch", "parameters": {"theta": -1.0}}), "cannot be read"),
        (put("loss_", {"loss": "welsch", "parameters": {"alpha": 1.0}}), "cannot be read"),
        (put("loss_", "welsch"), "loss_ is missing or of the wrong kind"),
        (put("extra_", {"python/object": "os.system"}), "of no type that this format has"),
        (put("extra_", {"array": "nowhere", "dtype": "float64"}), "missing or used twice"),
        (put("extra_", {"float": "one"}), "cannot be read"),
        (put("extra_", {"random": "Generator", "bits": "PCG64", "state": 3}), "invalid state"),
        (put("extra_", {"items": [1], "dtype": "|O", "shape": [2]}), "cannot be read"),
        (put("row_ids_", [1, 2]), "row_ids_ must hold 40 ids"),
        (drop("column_ids_"), "column_ids_ must hold 40 ids"),
        (reenter("indices", lambda a: a + 1), "values of a matrix"),
        (reenter("pointers", lambda a: a[::-1].copy()), "values of a matrix"),
        (reenter("values", put_nan), "values of a matrix"),
        (reenter("indices", lambda a: a.astype(np.int64)), "vector of int32"),
        (drop("row_bias_"), "row_bias_ must be an array"),
        (drop("history_"), "history_ is missing"),
        (reshape("row_factors_", lambda a: a[:, :1].copy()), "matrices of one width"),
        (reshape("row_factors_", lambda a: a.ravel()), "matrices of one width"),
        (
            reshape("column_bias_", lambda a: a[1:].copy()),
            r"column_bias_ must be an array of shape \(40,\)",
        ),
        (reshape("column_factors_", lambda a: a.astype(np.float32)), "dtype float64"),
        (reshape("row_factors_", lambda a: a.astype(np.int64)), "float32 or float64"),
        (reshape("column_factors_", put_nan), "must hold finite"),
    ],
)
def test_invalid_content_with_a_valid_checksum_is_refused_by_name(content, scratch, alter, message):
    refused(scratch, rewritten(content, alter), message)


@pytest.mark.parametrize("levels", [250, 900, 20_000])
def test_deep_nesting_is_refused(levels, content, scratch):
    # inserted as text, since the JSON encoder would exceed the recursion limit
    nested = rewritten(
        content,
        put("extra_", "here"),
        text=lambda text: text.replace('"here"', "[" * levels + "]" * levels),
    )
    scratch.write_bytes(nested)
    with pytest.raises(ModelFileError, match=r"nested too deeply|not a model file"):
        robustmf.load(scratch)


def test_other_versions_and_formats_are_refused_by_name(content, scratch):
    refused(
        scratch,
        rewritten(content, version=2),
        "version '2' of the format; this release reads version '1'",
    )
    refused(scratch, rewritten(content, mark="other"), "header cannot be read")
    refused(scratch, to_safetensors({"weights": np.ones(3)}), "header cannot be read")
    refused(scratch, pickle.dumps(MODEL), "not a model file")


def test_a_model_saved_twice_gives_the_same_bytes(tmp_path):
    for name in "ab":
        MODEL.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(FileNotFoundError):
        robustmf.load(tmp_path / "none")


def test_a_model_with_ids_is_restored(tmp_path):
    entries = Observed.from_triplets(
        row=["a", "b", "c", "a"], col=[1, 2, 1, 2], value=[1.0, 2.0, 3.0, 4.0]
    )
    model = RobustMF(1, random_state=0).fit(entries)
    assert_same(vars(model), vars(round_trip(model, tmp_path)))
