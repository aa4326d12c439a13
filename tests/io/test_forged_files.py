"""Forged model files and checkpoints: valid checksums, and content that no release writes."""

from __future__ import annotations

import json
import os
import tracemalloc

import numpy as np
import pytest

import robustmf
from forged import changed, drop, put, reenter, refused, reshape, rewritten
from robustmf import Observed, RobustMF
from robustmf.datasets import make_synthetic
from robustmf.exceptions import CheckpointError, ModelFileError, NotSavableError
from robustmf.io import encoding, model_file
from robustmf.io.model_file import Saved
from robustmf.io.model_state import _check_ids

DATA = make_synthetic(40, rank=2, observed=0.6, random_state=0)
MODEL = RobustMF(2, bias=True, random_state=0, n_jobs=1).fit(DATA.train)
GENERATORS = sorted(encoding._GENERATORS)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole") / "model.rmf"
    MODEL.save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A model with ids and entry weights."""
    names = [f"r{k}" for k in range(6)]
    columns = [f"c{k}" for k in range(5)]
    X = np.outer(np.arange(1.0, 7), np.arange(1.0, 6))
    entries = Observed.from_triplets(
        row=[row for row in names for _ in columns], col=columns * 6, value=X.ravel()
    )
    path = tmp_path_factory.mktemp("named") / "model.rmf"
    RobustMF(1, bias=False, random_state=0).fit(entries, weights=np.ones(30)).save(path)
    return path.read_bytes()


@pytest.fixture
def scratch(tmp_path):
    return tmp_path / "model.rmf"


# --- Random generators: NumPy follows positions in their states without checks ---


def random_file(bits, **changes):
    """Encoded generator whose state has changed values, and its arrays."""
    arrays = {}
    generator = np.random.Generator(getattr(np.random, bits)(1))
    encoded = encoding.encode(generator, "parameter random_state", arrays)
    document = encoded["state"]["dict"]
    for name, value in changes.items():
        inner = document["state"]["dict"]
        (inner if name in inner else document)[name] = value
    return encoded, arrays


def with_generator(content, encoded, added):
    def alter(document, arrays):
        text = json.dumps(encoded)
        for name, array in added.items():
            text = text.replace(f'"{name}"', f'"random {name}"')
            arrays[f"random {name}"] = array
        document["parameters"]["random_state"] = json.loads(text)

    return rewritten(content, alter)


@pytest.mark.parametrize("bits", GENERATORS)
def test_generators_are_restored(content, scratch, bits):
    scratch.write_bytes(with_generator(content, *random_file(bits)))
    expected = np.random.Generator(getattr(np.random, bits)(1)).bytes(32)
    assert robustmf.load(scratch).random_state.bytes(32) == expected


@pytest.mark.parametrize(
    ("bits", "changes"),
    [
        ("MT19937", {"pos": 10**6}),
        ("MT19937", {"pos": 625}),
        ("MT19937", {"pos": -1}),
        ("MT19937", {"pos": 3.0}),
        ("MT19937", {"key": [1, 2, 3]}),
        ("MT19937", {"more": 1}),
        ("MT19937", {"bit_generator": "PCG64"}),
        ("Philox", {"buffer_pos": 5}),
        ("Philox", {"buffer_pos": -1}),
        ("Philox", {"has_uint32": 2}),
        ("SFC64", {"uinteger": 2**32}),
        ("PCG64", {"inc": -1}),
        ("PCG64", {"state": 2**128}),
        ("PCG64DXSM", {"has_uint32": True}),
    ],
    ids=str,
)
def test_an_invalid_state_of_a_generator_is_refused(content, scratch, bits, changes):
    encoded, arrays = random_file(bits, **changes)
    if "key" in changes:
        arrays = {}
    refused(
        scratch, with_generator(content, encoded, arrays), "random generator|must have|cannot be"
    )


def test_the_largest_position_is_accepted(content, scratch):
    scratch.write_bytes(with_generator(content, *random_file("MT19937", pos=624)))
    assert robustmf.load(scratch).random_state.random() < 1


def test_arrays_of_a_state_must_have_their_shape(content, scratch):
    encoded, arrays = random_file("MT19937")
    (name,) = arrays
    refused(
        scratch, with_generator(content, encoded, {name: arrays[name][:600].copy()}), "invalid key"
    )


# --- Sizes ---


@pytest.mark.parametrize("dtype", ["<U60000000", "|S240000000", ">U60000000"])
def test_a_small_file_cannot_take_gigabytes(content, scratch, dtype):
    items = {"items": ["a"] * 12, "dtype": dtype, "shape": [12]}
    scratch.write_bytes(rewritten(content, put("labels_", items)))
    tracemalloc.start()
    with pytest.raises(ModelFileError, match="too large for a file of this length"):
        robustmf.load(scratch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * len(scratch.read_bytes())


def test_the_sizes_of_all_arrays_count(content, scratch):
    width = encoding._MAX_EXPANSION * len(content) // 4
    items = {"items": ["a"], "dtype": f"<U{width // 2}", "shape": [1]}

    def alter(document, arrays):
        for k in range(3):
            document["state"][f"labels{k}_"] = items

    refused(scratch, rewritten(content, alter), "too large for a file of this length")


def test_arrays_that_cannot_be_loaded_are_not_saved(tmp_path):
    model = RobustMF(2, random_state=0, n_jobs=1).fit(DATA.train)
    model.labels_ = np.array(["a"], "<U100000")
    with pytest.raises(NotSavableError, match=r"padding.*astype\(object\)"):
        model.save(tmp_path / "model.rmf")
    model.labels_ = np.array(["a" * 200, "b"], "<U300")
    model.save(tmp_path / "model.rmf")
    assert robustmf.load(tmp_path / "model.rmf").labels_.dtype == "<U300"


# --- Types ---


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"items": [1], "dtype": "float64", "shape": [1]}, "cannot have dtype"),
        ({"items": [], "dtype": "V8", "shape": [0]}, "cannot have dtype"),
        ({"items": [], "dtype": "(2)O", "shape": [0]}, "cannot have dtype"),
        ({"items": [], "dtype": "O,O", "shape": [0]}, "cannot have dtype"),
        ({"items": [1], "dtype": "|O", "shape": [True]}, "int expected"),
        ({"random": "os.system", "bits": "PCG64", "state": 0}, "invalid state"),
        ({"random": "Generator", "bits": "SeedSequence", "state": 0}, "cannot be read"),
        ({"random": "Generator", "bits": ["PCG64"], "state": 0}, "str expected"),
        ({"loss": ["welsch"], "parameters": {}}, "str expected"),
        ({"loss": "welsch", "parameters": []}, "names and values expected"),
        ({"tuple": {"a": 1}}, "list expected"),
        ({"date": 5}, "str expected"),
        ({"date": "9" * 5000}, "cannot be read"),
        ({"decimal": "x"}, "cannot be read"),
        ({"bytes": "zz"}, "cannot be read"),
    ],
)
def test_values_outside_the_list_of_types_are_refused(content, scratch, value, message):
    refused(scratch, rewritten(content, put("extra_", value)), message)


@pytest.mark.parametrize(
    "dtype", ["complex128", "float128", "object", "V8", "f8,f8", "datetime64[x]", "two\nlines"]
)
def test_dtypes_of_arrays_are_listed(content, scratch, dtype):
    def alter(document, arrays):
        arrays["more"] = np.ones(2)
        document["state"]["extra_"] = {"array": "more", "dtype": dtype}

    refused(scratch, rewritten(content, alter), "cannot have dtype")


def test_a_scalar_is_no_array(content, scratch):
    def alter(document, arrays):
        arrays["more"] = np.ones(2)
        document["state"]["extra_"] = {"scalar": "more", "dtype": "float64"}

    refused(scratch, rewritten(content, alter), "scalar is stored with shape")


# --- Content ---


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["a", "a", "b", "c", "d", "e"], "must be distinct"),
        ([1, 1.0, 2, 3, 4, 5], {"float": "1.0"}),
        ([["a"], "b", "c", "d", "e", "f"], "cannot contain a list"),
        ([{"dict": {}}, "b", "c", "d", "e", "f"], "cannot contain a dict"),
        ([{"tuple": [["a"]]}, "b", "c", "d", "e", "f"], "cannot contain a tuple"),
        ([None, "b", "c", "d", "e", "f"], "cannot contain a NoneType"),
        ([{"float": "nan"}, "b", "c", "d", "e", "f"], "cannot contain a float"),
        ([{"decimal": "NaN"}, "b", "c", "d", "e", "f"], "cannot contain a Decimal"),
        ([{"decimal": "sNaN"}, "b", "c", "d", "e", "f"], "cannot contain a Decimal"),
        ([{"tuple": [{"decimal": "sNaN"}]}, "b", "c", "d", "e", "f"], "cannot contain a tuple"),
        (
            [{"loss": "welsch", "parameters": {}}, "b", "c", "d", "e", "f"],
            "cannot contain a Welsch",
        ),
        ("abcdef", "must hold 6 ids"),
        ({"dict": {"a": 1}}, "must hold 6 ids"),
    ],
    ids=str,
)
def test_invalid_ids_are_refused(named, scratch, ids, message):
    message = message if isinstance(message, str) else "must be distinct"
    refused(scratch, rewritten(named, put("row_ids_", ids)), message)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("reg_", -1.0, "reg_ must be finite and >= 0"),
        ("theta_", -1.0, "theta_ must be finite and >= 0"),
        ("theta_", 0.0, "theta_ must be positive"),
        ("theta_", 123.0, "theta_ must be that of loss_"),
        ("bias_unit_", 0.0, "bias_unit_ must be positive"),
        ("scale_", -1.0, "scale_ must be"),
        ("scale_", 1e-200, "scale_ must have a finite square"),
        ("scale_", 1e200, "scale_ must have a finite square"),
        ("bias_unit_", 1e-320, "bias_unit_ must have a finite square"),
        ("bias_unit_", 1e300, "bias_unit_ must have a finite square"),
        ("n_iter_", -1, "n_iter_ must be"),
        ("best_iteration_", -1, "best_iteration_ must be"),
        ("best_iteration_", 10**9, "objective of best_iteration_"),
        ("n_entries_initialized", -1, "n_entries_initialized must be"),
        ("history_", {"dict": {"objective": ["a"]}}, "lists of numbers"),
        ("history_", {"dict": {"objective": 3}}, "lists of numbers"),
        ("history_", {"dict": {"objective": [1.0], "seconds": []}}, "of one length"),
        ("history_", {"dict": {}}, "objective of best_iteration_"),
        ("history_", {"dict": {"objective": [10**400] * 99}}, "lists of numbers"),
        ("candidates_", 5, "candidates_ must be a list"),
        ("candidates_", None, "candidates_ must be a list"),
        ("candidates_", [5], "a candidate of the model choice is invalid"),
        ("candidates_", [{"dict": {"model": "center"}}], "a candidate of the model choice"),
        ("failed_checks_", 5, "failed_checks_ must be a list"),
        ("failed_checks_", "scale", "failed_checks_ must be a list"),
        ("failed_checks_", [5], "failed_checks_ must be texts"),
        ("n_iter_", 10**30, "the content is not what this release writes"),
        ("best_iteration_", 10**30, "the content is not what this release writes"),
        ("n_entries_initialized", 10**30, "the content is not what this release writes"),
        ("bounds_", [1.0, 2.0], "bounds_ must be"),
        ("bounds_", {"tuple": [2.0, 1.0]}, "bounds_ must be"),
        ("bounds_", {"tuple": [1.0, {"float": "nan"}]}, "bounds_ must be"),
        ("sigma_", -1.0, "sigma_ must be"),
        ("sigma_", {"float": "inf"}, "sigma_ must be"),
        ("sigma_", "1", "sigma_ must be"),
        ("nonnegative_factors", 1, "nonnegative_factors must be a bool"),
        ("nonnegative_factors", True, "non-negative factors must be >= 0"),
        ("noise_scales", [], "noise_scales must be two vectors"),
        ("noise_scales", 3, "noise_scales must be two vectors"),
        ("noise_scales", {"tuple": [[1.0] * 40, [1.0] * 40]}, "noise_scales must be two vectors"),
        ("model_", {"dict": {}}, "cannot have fitted attributes named"),
        ("__getattr__", 3, "cannot have fitted attributes named"),
        ("_metadata_request", 3, "cannot have fitted attributes named"),
        ("_sklearn_output_config", 3, "must be the settings of set_output"),
        ("_sklearn_output_config", {"dict": {"transform": 3}}, "must be the settings of set_"),
        ("n_features_in_", 39, "n_features_in_ must be 40, got 39"),
        ("feature_names_in_", ["a"], "feature_names_in_ must hold 40 strings"),
        ("feature_names_in_", 3, "feature_names_in_ must hold 40 strings"),
        ("feature_names_in_", [1] * 40, "feature_names_in_ must hold 40 strings"),
    ],
)
def test_impossible_values_are_refused(content, scratch, name, value, message):
    refused(scratch, rewritten(content, put(name, value)), message)


#: An array whose text has several lines, and whose comparisons have no truth value.
SEVERAL_LINES = {"items": [1, 2, 3, 4, 5, 6], "dtype": "|O", "shape": [6, 1]}


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("state", "sigma_"),
        ("state", "bounds_"),
        ("state", "nonnegative_factors"),
        ("state", "n_features_in_"),
        ("parameters", "bounds"),
    ],
)
def test_values_with_several_lines_are_refused_in_one(content, scratch, section, name):
    refused(scratch, rewritten(content, put(name, SEVERAL_LINES, section)))


def without_factors(document, arrays):
    for name in ("row_factors_", "column_factors_"):
        reshape(name, lambda array: array[:, :0])(document, arrays)
    reshape("row_ridge", lambda array: array[:, -1:])(document, arrays)


def test_a_model_without_factors_must_have_biases(content, named, scratch):
    refused(scratch, rewritten(named, without_factors), "without factors must have biases")
    scratch.write_bytes(rewritten(content, without_factors))
    model = robustmf.load(scratch)
    assert model.transform(np.ones((3, 40))).shape == (3, 1)
    assert model.predict(np.ones((3, 40))).shape == (3, 40)


def test_ids_of_one_hash_are_refused():
    """Their comparison with each other would take quadratic time."""
    _check_ids("row_ids_", [-1, -2, "a", 1.5], 4)
    ids = [k * (2**61 - 1) for k in range(20_000)]
    with pytest.raises(ModelFileError, match="row_ids_ cannot contain 20000 ids of one hash"):
        _check_ids("row_ids_", ids, len(ids))
    with pytest.raises(ModelFileError, match="of one hash"):
        _check_ids("row_ids_", [("a", one) for one in ids], len(ids))


def test_the_settings_of_set_output_are_restored(tmp_path):
    pytest.importorskip("pandas")
    model = RobustMF(1, random_state=0).fit(DATA.train).set_output(transform="pandas")
    model.save(tmp_path / "model.rmf")
    loaded = robustmf.load(tmp_path / "model.rmf")
    assert list(loaded.transform(DATA.train).columns) == ["robustmf0"]


@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_what_may_not_end_is_refused(tmp_path, kind):
    path = tmp_path / "model.rmf"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(ModelFileError, match=r"model\.rmf: not a regular file"):
        robustmf.load(path)
    with pytest.raises(CheckpointError, match=r"model\.rmf: not a regular file"):
        RobustMF(1).fit(DATA.train, checkpoint=path)


def test_a_folder_is_reported(tmp_path):
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        robustmf.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("indices", changed(0, -1)),
        ("indices", changed(-1, 40)),
        ("indices", changed(-1, 2**31 - 1)),
        ("indices", lambda a: a[::-1].copy()),
        ("indices", lambda a: np.repeat(a[:1], len(a))),
        ("indices", lambda a: a[:-1].copy()),
        ("values", lambda a: a[:-1].copy()),
        ("pointers", changed(0, 1)),
        ("pointers", changed(0, -1)),
        ("pointers", changed(-1, 10**9)),
        ("pointers", changed(5, 10**9)),
        ("pointers", lambda a: a[:-1].copy()),
        ("pointers", lambda a: np.append(a, a[-1])),
        ("values", changed(0, np.inf)),
    ],
)
def test_positions_out_of_bounds_are_refused(content, scratch, name, change):
    refused(scratch, rewritten(content, reenter(name, change)), "values of a matrix")


@pytest.mark.parametrize(
    "change",
    [changed(0, -1.0), changed(0, np.nan), lambda a: a[:-1].copy(), lambda a: a.astype(np.float32)],
)
def test_invalid_weights_are_refused(named, scratch, change):
    refused(scratch, rewritten(named, reenter("weights", change)), "weights of entries_")


@pytest.mark.parametrize("name", ["row_factors_", "column_factors_", "row_bias_", "column_bias_"])
def test_factors_and_biases_are_checked(content, scratch, name):
    nan = changed(0, np.nan)
    refused(scratch, rewritten(content, reshape(name, nan)), "must hold finite")
    refused(scratch, rewritten(content, drop(name)), "must be")


@pytest.mark.parametrize("value", [-0.5, 1.5, np.nan])
def test_reliabilities_are_probabilities(content, scratch, value):
    forged = rewritten(content, reshape("reliability_", changed(0, value)))
    refused(scratch, forged, "one float32 number from 0 to 1 per entry")


def test_weights_whose_squares_overflow_are_refused(named, scratch):
    large = rewritten(named, reenter("weights", changed(0, 1e200)))
    refused(scratch, large, "must be below 1.34e[+]154 in size")


def test_factors_biases_and_entries_whose_squares_overflow_are_refused(content, scratch):
    names = ("row_factors_", "column_factors_", "row_bias_", "column_bias_")
    large = [reshape(name, changed(0, 1e200)) for name in names]
    for change in (*large, put("center_", -1e200), reenter("values", changed(0, -1e200))):
        refused(scratch, rewritten(content, change), "must be below 1.34e[+]154 in size")


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e200, np.inf, np.nan])
def test_scales_whose_squares_are_not_representable_are_refused(content, scratch, scale):
    """Scores of such a model raised errors of NumPy that did not name the file."""

    def alter(document, arrays):
        for name in ("first", "second"):
            arrays[name] = np.full(40, scale)
        scales = [{"array": name, "dtype": "float64"} for name in ("first", "second")]
        document["state"]["noise_scales"] = {"tuple": scales}

    refused(scratch, rewritten(content, alter), "noise_scales must be two vectors")


def test_an_empty_row_is_accepted(tmp_path):
    X = np.outer(np.arange(1.0, 7), np.arange(1.0, 6))
    X[2] = np.nan
    X[5] = np.nan
    model = RobustMF(1, bias=False, random_state=0)
    with pytest.warns(robustmf.exceptions.RobustMFWarning):
        model.fit(X)
    model.save(tmp_path / "model.rmf")
    assert robustmf.load(tmp_path / "model.rmf").predict(0, 0) == model.predict(0, 0)


# --- Checkpoints ---


@pytest.mark.parametrize(
    "seed",
    [
        {"bits": "PCG64", "entropy": [1], "key": [], "pool": 2**40},
        {"bits": "PCG64", "entropy": [1], "key": [], "pool": 2000},
        {"bits": "PCG64", "entropy": [], "key": [], "pool": 4},
        {"bits": "PCG64", "entropy": ["1"], "key": [], "pool": 4},
        {"bits": "PCG64", "entropy": [1], "key": [-1], "pool": 4},
        {"bits": "PCG64", "entropy": [1], "key": []},
        [],
    ],
    ids=str,
)
def test_an_invalid_seed_of_a_checkpoint_is_refused(tmp_path, seed):
    path = tmp_path / "checkpoint"
    model = RobustMF(2, max_iter=2, tol=1e-9, n_jobs=1, callbacks=[lambda snapshot: True])
    model.fit(DATA.train, checkpoint=path, checkpoint_every=0)
    saved = model_file.read(path)
    model_file.write(path, Saved(saved.kind, saved.parameters, saved.state | {"seed": seed}))
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="content is not what this release writes"):
        model.fit(DATA.train, checkpoint=path)
    assert path.read_bytes() == before
