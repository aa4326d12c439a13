"""Models on the CUDA backend: equal to the CPU backend, input from both memories, errors."""

from __future__ import annotations

import ast
import importlib.util
import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from conftest import INTERPRETED, Root, needs_gpu, random_problem
from robustmf import MM, RMFNL, Observed, RobustMF

pytestmark = pytest.mark.filterwarnings("ignore::robustmf.exceptions.NotConvergedWarning")

SIZE = (24, 20, 2) if INTERPRETED else (300, 200, 3)


#: All methods that compute on the GPU.
METHODS = """
import warnings
import numpy as np
from robustmf import RobustMF
warnings.simplefilter("ignore")
fitted = RobustMF(1, max_iter=0, init="ridge", random_state=0).fit(np.ones((3, 3)))
fitted.set_params(device="cuda")
new = RobustMF(2, device="cuda")
for method in (
    new.fit, new.fit_transform, new.partial_fit,
    fitted.partial_fit, fitted.transform, fitted.score, fitted.entry_weights,
):
    try:
        method(np.eye(3))
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
"""


FIT = ["-m", "robustmf.cli", "fit", "not-even-read.csv", "--device", "cuda"]


@pytest.mark.parametrize(("command", "lines"), [(["-c", METHODS], 7), (FIT, 1)])
def test_without_a_gpu_or_the_extra_one_line_reports_what_is_missing(command, lines):
    environment = {
        name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"
    } | {"CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )
    reported = (ran.stdout + ran.stderr).strip().splitlines()
    assert len(reported) == lines, ran.stderr
    device = "device='cuda'" if lines > 1 else "--device 'cuda'"
    for line in reported:
        if importlib.util.find_spec("torch") is None:
            assert (
                f"Error: {device} needs torch and triton; "
                "install them with: pip install 'robustmf[gpu]'" in line
            )
        else:
            assert f"Error: {device} needs an NVIDIA GPU and its driver; PyTorch" in line


def test_a_model_that_was_fitted_on_a_gpu_predicts_without_one():
    """Memory can be estimated without a GPU, too."""
    model = (
        RobustMF(1, max_iter=0, init="ridge", random_state=0)
        .fit(np.ones((3, 3)))
        .set_params(device="cuda")
    )
    assert model.predict([0, 1], [2, 2]).shape == (2,)
    assert model.recommend([0], 1, exclude_seen=False).items.shape == (1, 1)
    large = {"shape": (480_189, 17_770), "n_entries": 100_000_000, "dtype": "float32"}
    on_gpu, on_host = (
        RobustMF(10, device=device).memory_estimate(**large) for device in ("cuda", "cpu")
    )
    assert 7.5e9 < on_gpu < 8.5e9  # measured with every default: 7.5 GB
    assert on_host < on_gpu


@pytest.mark.parametrize("device", ["gpu", "cuda:7", 0, None])
def test_unknown_devices_are_refused_by_fit(device):
    with pytest.raises(ValueError, match="device must be 'cpu' or 'cuda'"):
        RobustMF(2, device=device).fit(np.eye(3))


def fits(X, model=RobustMF, weights=None, **settings):
    return [
        model(device=device, random_state=0, n_jobs=1, **settings).fit(X, weights=weights)
        for device in ("cpu", "cuda")
    ]


@needs_gpu
@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (RobustMF, {"loss": "welsch"}),
        (RobustMF, {"loss": "lsp", "bias": True}),
        (RobustMF, {"loss": "huber", "reg_by_count": True, "init": "random"}),
        (RobustMF, {"solver": MM(max_iter=5), "loss": "lsp", "init": "random"}),
        pytest.param(
            RMFNL,
            {"init": "random"},
            marks=pytest.mark.skipif(INTERPRETED, reason="takes Triton's interpreter a minute"),
        ),
    ],
)
def test_the_same_model_on_both_backends(model, settings):
    m, n, rank = SIZE
    observed, _, _ = random_problem(m, n, rank)
    settings = {"rank": rank, "max_iter": 2, "init": "ridge"} | settings
    cpu, gpu = fits(observed, model, **settings)
    for name in ("row_factors_", "column_factors_", "row_bias_", "column_bias_"):
        np.testing.assert_allclose(getattr(gpu, name), getattr(cpu, name), atol=1e-6)
    assert isinstance(gpu.row_factors_, np.ndarray)
    np.testing.assert_allclose(gpu.history_["objective"], cpu.history_["objective"], rtol=1e-8)
    assert gpu.score(observed, rows="fitted") == pytest.approx(
        cpu.score(observed, rows="fitted"), rel=1e-8
    )
    if not INTERPRETED:  # a hundred half-steps
        assert gpu.score(observed) == pytest.approx(cpu.score(observed), rel=1e-6)
    assert (gpu.median_, gpu.scale_) == pytest.approx((cpu.median_, cpu.scale_), rel=1e-12)
    assert set(gpu.history_) == set(cpu.history_)


@needs_gpu
def test_fold_in_weights_and_initialization_on_both_backends():
    m, n, rank = SIZE
    observed, _, _ = random_problem(m, n, rank)
    weights = np.abs(np.sin(np.arange(observed.n_entries))) * (
        np.arange(observed.n_entries) % 7 > 0
    )
    cpu, gpu = fits(observed, rank=rank, weights=weights, max_iter=1)
    np.testing.assert_allclose(gpu.row_factors_, cpu.row_factors_, atol=1e-6)
    np.testing.assert_allclose(gpu.transform(observed), cpu.transform(observed), atol=1e-5)
    np.testing.assert_allclose(gpu.entry_weights(observed), cpu.entry_weights(observed), atol=1e-5)


@needs_gpu
def test_validation_holds_out_the_same_entries_and_residuals_are_clipped():
    m, n, rank = SIZE
    observed, _, _ = random_problem(m, n, rank)
    cpu, gpu = fits(
        observed,
        rank=rank,
        init="ridge",
        max_iter=2,
        validation_fraction=0.2,
        bounds=(-1.0, 1.0),
        bias=True,
    )
    np.testing.assert_allclose(gpu.history_["validation"], cpu.history_["validation"], rtol=1e-6)
    assert gpu.score(observed, rows="fitted") == pytest.approx(
        cpu.score(observed, rows="fitted"), rel=1e-6
    )


def with_ids(i, j, v):
    (row_ids, rows), (column_ids, columns) = (
        np.unique(index, return_inverse=True) for index in (i, j)
    )
    shape = len(row_ids), len(column_ids)
    return Observed(
        Observed.from_indices(rows, columns, v, shape).rows,
        shape,
        row_ids.tolist(),
        column_ids.tolist(),
    )


@needs_gpu
@pytest.mark.parametrize("bias", [False, True])
def test_partial_fit_on_both_backends(bias):
    m, n, rank = SIZE
    observed, _, _ = random_problem(m, n, rank)
    i = observed.rows.group_of_entry()
    j = observed.rows.indices
    v = observed.rows.values
    first = (i < m - 4) & (j < n - 3)
    parts = [with_ids(i[some], j[some], v[some]) for some in (first, ~first)]
    # the repair of rows, which follows with a robust loss, takes the interpreter minutes
    loss = "l2" if INTERPRETED else "welsch"
    cpu, gpu = fits(
        parts[0], rank=rank, loss=loss, init="ridge", max_iter=2, bias=bias, reg_by_count=bias
    )
    for model in (cpu, gpu):
        model.partial_fit(parts[1])
    assert gpu.row_ids_ == cpu.row_ids_
    np.testing.assert_array_equal(gpu.entries_["indices"], cpu.entries_["indices"])
    np.testing.assert_allclose(gpu.transform(parts[1]), cpu.transform(parts[1]), atol=1e-2)
    assert gpu.score(parts[1], rows="fitted") == pytest.approx(
        cpu.score(parts[1], rows="fitted"), rel=1e-2
    )


@needs_gpu
def test_entries_stay_on_the_gpu_until_they_are_used():
    import torch  # noqa: PLC0415

    observed, _, _ = random_problem(*SIZE)
    i = observed.rows.group_of_entry()
    j = observed.rows.indices
    v = observed.rows.values
    coo = sp.coo_array((v[::-1], (i[::-1], j[::-1])), shape=observed.shape)
    dense = torch.full(observed.shape, torch.nan, dtype=torch.float64)
    dense[torch.from_numpy(i).long(), torch.from_numpy(j).long()] = torch.from_numpy(v)
    settings = {"rank": 2, "max_iter": 1, "init": "ridge", "random_state": 0}
    cpu = RobustMF(**settings).fit(observed)
    wanted = dict(cpu.entries_)
    assert (
        RobustMF(device="cuda", **settings).fit(observed).entries_["values"] is observed.rows.values
    )
    for X in (coo, dense):
        model = RobustMF(device="cuda", **settings).fit(X)
        assert model.entries_._on_gpu is not None
        again = pickle.loads(pickle.dumps(model))
        assert type(again.entries_) is dict
        assert model.entries_._on_gpu is None
        for entries in (model.entries_, again.entries_):
            assert entries["weights"] is None
            for name in ("pointers", "indices", "values"):
                np.testing.assert_array_equal(entries[name], wanted[name])
        np.testing.assert_allclose(
            model.score(X, rows="fitted"), cpu.score(observed, rows="fitted"), rtol=1e-6
        )
        np.testing.assert_allclose(model.outlier_scores(), cpu.outlier_scores(), atol=1e-4)
        np.testing.assert_array_equal(
            model.recommend([0, 1], 3).items, cpu.recommend([0, 1], 3).items
        )


@needs_gpu
def test_a_model_is_saved_from_the_gpu(tmp_path):
    pytest.importorskip("safetensors")
    from robustmf import load  # noqa: PLC0415

    observed, _, _ = random_problem(*SIZE)
    model = RobustMF(2, device="cuda", max_iter=1, init="ridge", random_state=0).fit(
        observed.to_sparse().tocoo()
    )
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.entries_["values"], observed.rows.values)
    np.testing.assert_array_equal(loaded.row_factors_, model.row_factors_)


@needs_gpu
def test_new_rows_without_entries_get_zeros():
    observed, _, _ = random_problem(*SIZE)
    model = RobustMF(2, device="cuda", max_iter=1, init="ridge", random_state=0).fit(observed)
    np.testing.assert_array_equal(
        model.transform(np.full((3, observed.shape[1]), np.nan)), np.zeros((3, 2))
    )


@needs_gpu
def test_the_same_bits_in_every_run():
    m, n, rank = SIZE
    observed, _, _ = random_problem(m, n, rank, dtype=np.float32)
    once, twice = (
        RobustMF(rank, device="cuda", random_state=0, max_iter=2, init="ridge").fit(observed)
        for _ in range(2)
    )
    np.testing.assert_array_equal(once.row_factors_, twice.row_factors_)
    np.testing.assert_array_equal(once.column_factors_, twice.column_factors_)


@needs_gpu
def test_entries_are_compressed_on_the_gpu():
    import torch  # noqa: PLC0415

    from robustmf.backends.cuda.backend import CUDABackend  # noqa: PLC0415

    observed, _, _ = random_problem(dtype=np.float32)
    i = observed.rows.group_of_entry()
    j = observed.rows.indices
    v = observed.rows.values
    shuffled = np.random.default_rng(0).permutation(len(v))
    coo = sp.coo_array((v[shuffled], (i[shuffled], j[shuffled])), shape=observed.shape)
    with torch.sparse.check_sparse_tensor_invariants(enable=True):
        sparse = torch.sparse_coo_tensor(
            np.stack([i, j])[:, shuffled], torch.from_numpy(v[shuffled]), observed.shape
        )
    for X in (
        coo,
        coo.tocsr(),
        sparse,
        observed,
        torch.from_numpy(np.where(coo.toarray() == 0, np.nan, coo.toarray())),
    ):
        made = CUDABackend().observe(X)
        for got, wanted in ((made.rows, observed.rows), (made.columns, observed.columns)):
            np.testing.assert_array_equal(np.asarray(got.pointers), wanted.pointers)
            np.testing.assert_array_equal(np.asarray(got.indices), wanted.indices)
            np.testing.assert_array_equal(np.asarray(got.values), wanted.values)
        np.testing.assert_array_equal(np.asarray(made.column_order), observed.column_order)


@needs_gpu
@pytest.mark.skipif(
    INTERPRETED or importlib.util.find_spec("cupy") is None, reason="needs a GPU and CuPy"
)
def test_arrays_of_other_libraries_are_accepted_by_dlpack():
    import cupy  # noqa: PLC0415
    import torch  # noqa: PLC0415
    from cupyx.scipy import sparse  # noqa: PLC0415

    from robustmf.backends.cuda.backend import CUDABackend  # noqa: PLC0415
    from robustmf.backends.cuda.observed import DeviceObserved, _to_gpu  # noqa: PLC0415

    observed, _, _ = random_problem(dtype=np.float32)
    rows = observed.rows.group_of_entry()
    dense = np.full(observed.shape, np.nan, observed.dtype)
    dense[rows, observed.rows.indices] = observed.rows.values
    # only copies: CuPy compiles computations, which takes long
    i, j, v, X = (
        cupy.asarray(a) for a in (rows, observed.rows.indices, observed.rows.values, dense)
    )
    pointers = cupy.asarray(observed.rows.pointers.astype(np.int32))
    given = {
        "indices": DeviceObserved.from_indices(i, j, v, observed.shape),
        "coo": CUDABackend().observe(sparse.coo_matrix((v, (i, j)), shape=observed.shape)),
        "csr": CUDABackend().observe(sparse.csr_matrix((v, j, pointers), shape=observed.shape)),
        "dense": CUDABackend().observe(X),
        "torch": CUDABackend().observe(torch.from_dlpack(X)),
    }
    for name, made in given.items():
        np.testing.assert_array_equal(
            np.asarray(made.rows.indices), observed.rows.indices, err_msg=name
        )
        np.testing.assert_array_equal(
            np.asarray(made.rows.values), observed.rows.values, err_msg=name
        )
    # arrays in GPU memory are not copied
    for array in (i, j, v):
        assert _to_gpu(array, torch.device("cuda")).data_ptr() == array.data.ptr
    tensor = torch.ones(3, device="cuda")
    assert _to_gpu(tensor, torch.device("cuda")) is tensor
    wanted = RobustMF(2, device="cuda", max_iter=2, init="ridge", random_state=0).fit(observed)
    for given_as in (X, sparse.coo_matrix((v, (i, j)), shape=observed.shape), torch.from_dlpack(X)):
        model = RobustMF(2, device="cuda", max_iter=2, init="ridge", random_state=0).fit(given_as)
        np.testing.assert_array_equal(model.row_factors_, wanted.row_factors_)


@needs_gpu
def test_invalid_entries_are_refused_as_on_the_cpu():
    from robustmf.backends.cuda.observed import DeviceObserved  # noqa: PLC0415

    device = "cpu" if INTERPRETED else "cuda"
    i = np.array([0, 1, 1])
    j = np.array([0, 1, 1])
    v = np.array([1.0, 2.0, 4.0])
    with pytest.raises(ValueError, match="duplicate entry at row 1, column 1"):
        DeviceObserved.from_indices(i, j, v, device=device)
    last, mean = (
        DeviceObserved.from_indices(i, j, v, duplicates=rule, device=device)
        for rule in ("last", "mean")
    )
    assert np.asarray(last.rows.values).tolist() == [1.0, 4.0]
    assert np.asarray(mean.rows.values).tolist() == [1.0, 3.0]
    with pytest.raises(ValueError, match="values must be finite"):
        DeviceObserved.from_indices(i[:2], j[:2], np.array([1.0, np.nan]), device=device)
    with pytest.raises(ValueError, match=r"columns must lie in 0 … 0 for shape \(2, 1\), got 1"):
        DeviceObserved.from_indices(i[:2], j[:2], v[:2], (2, 1), device=device)
    with pytest.raises(TypeError, match="rows must be an array of integers"):
        DeviceObserved.from_indices(v, j, v, device=device)


@needs_gpu
@pytest.mark.skipif(INTERPRETED, reason="requires GPU memory")
def test_problems_that_exceed_gpu_memory_are_refused_with_the_sizes_and_release_it():
    """In a process limited to 0.8 GB: entries of the host and of the GPU, then a smaller fit."""
    code = """
import gc, re
import numpy as np, scipy.sparse as sp, torch
from robustmf import RobustMF
from robustmf.backends.cuda.observed import DeviceObserved
total = torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(0.8e9 / total)
rng = np.random.default_rng(0)
def entries(n, m=100_000, columns=5000):
    at = np.unique(rng.integers(0, m * columns, n))
    values = rng.standard_normal(len(at)).astype(np.float32)
    return sp.coo_array((values, (at // columns, at % columns)), shape=(m, columns))
model = RobustMF(
    40, device="cuda", init="random", max_iter=1, theta=1.0, reg=1.0, bias=False, random_state=0
)
large, medium, small = entries(30_000_000), entries(8_000_000), entries(20_000)
on_gpu = [torch.as_tensor(a).cuda() for a in (medium.row, medium.col, medium.data)]
before = torch.cuda.memory_allocated()
for X in (large, medium, None):
    try:
        model.fit(DeviceObserved.from_indices(*on_gpu, medium.shape) if X is None else X)
    except MemoryError as error:
        print(error)
    else:
        print("fitted")
    gc.collect()
    print("left", torch.cuda.memory_allocated() - before)
RobustMF(2, device="cuda", init="random", max_iter=1, random_state=0).fit(small)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    refused = ran.stdout.splitlines()[::2]
    left = ran.stdout.splitlines()[1::2]
    sizes = (
        r"needs about \d+\.\d GB on cuda(:0)?, which has 0\.\d of \d+\.\d GB free; "
        r"use device='cpu', float32 values, or fewer entries"
    )
    assert re.fullmatch(rf"X with 29\d+ entries {sizes}", refused[0])
    for message in refused[1:]:
        assert re.fullmatch(rf"rank 40 with 79\d+ entries {sizes}", message)
    assert left == ["left 0"] * 3


@needs_gpu
def test_solvers_that_require_host_arrays_are_refused():
    with pytest.raises(ValueError, match="solver='varpro' needs entries in host memory"):
        RobustMF(2, device="cuda", solver="varpro").fit(np.eye(3) + 1)
    with pytest.raises(ValueError, match="fits ranks up to 128, a bias counted as one; got 129"):
        RobustMF(128, device="cuda", bias=True).fit(np.ones((130, 130)))
    with pytest.raises(ValueError, match="inner='apg-dense' needs entries in host memory"):
        RobustMF(2, device="cuda", solver=MM(inner="apg-dense"), loss="lsp").fit(np.eye(3) + 1)


@needs_gpu
def test_formulas_are_traced():
    from robustmf.backends.cuda.expression import value_code, weight_code  # noqa: PLC0415
    from robustmf.losses import loss_names, make_loss  # noqa: PLC0415

    for name in loss_names():
        loss = make_loss(name)
        base = getattr(loss, "base", loss)
        assert value_code(base) is not None, name
        assert weight_code(base) is not None or base.weight_formula is None, name
    assert value_code(Root()) is not None
    # one kernel for every θ
    assert value_code(make_loss("lsp", 1.0))[0] is value_code(make_loss("lsp", 2.0))[0]


@needs_gpu
@pytest.mark.parametrize("rank", [17, 32, 33, 64])
@pytest.mark.parametrize("wide", [False, True])
def test_loops_of_generated_kernels_do_not_assign_to_parameters(rank, wide, monkeypatch):
    """Triton refuses a variable whose type changes in a loop; its interpreter does not notice."""
    from robustmf.backends.cuda.kernels import eliminate  # noqa: PLC0415 - imports triton

    monkeypatch.setattr(eliminate, "compiled", lambda name, lines: "\n    ".join(lines))
    (function,) = ast.parse(eliminate.solve.__wrapped__(rank, wide)).body
    parameters = {one.arg for one in function.args.args}
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For)]
    assert loops
    for node in (inner for loop in loops for inner in ast.walk(loop)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assert node.id not in parameters
