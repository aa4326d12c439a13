"""Problems and tools that several tests share."""

from __future__ import annotations

import importlib.util
import inspect
import os
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import sklearn
from threadpoolctl import threadpool_limits

from robustmf.backends.cpu.operations import CPUOperations
from robustmf.data.observed import Observed
from robustmf.kernels.team import Team
from robustmf.losses import Loss

#: Why the CUDA backend cannot run here, or None. Without a GPU it runs in Triton's interpreter.
NO_GPU = (
    None
    if importlib.util.find_spec("torch") and importlib.util.find_spec("triton")
    else "needs the extra 'gpu' (torch, triton)"
)
INTERPRETED = False
if NO_GPU is None:
    import torch

    INTERPRETED = not torch.cuda.is_available()
    if INTERPRETED:
        os.environ["TRITON_INTERPRET"] = "1"

#: Set in continuous integration to accept that the tests of the CUDA backend are skipped.
ALLOW_SKIPPED_GPU_TESTS = "ROBUSTMF_ALLOW_SKIPPED_GPU_TESTS"

#: Workers of the cluster of the tests, and the folder of the tests that use it.
N_WORKERS = 3
USE_CLUSTER = Path(__file__).parent / "backends"


def pytest_configure(config):
    """Register markers, limit BLAS, restore Ctrl-C, ignore a warning of Triton's interpreter."""
    # Threads of BLAS that wait for a core which another process uses cost more than they save.
    # Tests for which the number of threads matters set it themselves.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    threadpool_limits(int(os.environ["OPENBLAS_NUM_THREADS"]), user_api="blas")
    # A background job ignores SIGINT, and so would the processes that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for marker in (
        "gpu: runs the CUDA backend, on a GPU or in Triton's interpreter",
        "pages: executes the code of a page of the documentation, as make docs does",
        "slow: takes long: environments, documentation, clusters, stress tests (make test-all)",
    ):
        config.addinivalue_line("markers", marker)
    if INTERPRETED:
        config.addinivalue_line(
            "filterwarnings",
            "ignore:Conversion of an array:DeprecationWarning:triton.runtime.interpreter",
        )


needs_gpu = pytest.mark.gpu

#: The backends with operations on entries, by the values of ``device``, and all backends.
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]
BACKENDS = [*DEVICES, "dask"]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip tests of the CUDA backend where it cannot run; in CI that is a failure."""
    if NO_GPU is None or not item.get_closest_marker("gpu"):
        return
    if os.environ.get("CI") and not os.environ.get(ALLOW_SKIPPED_GPU_TESTS):
        pytest.fail(f"{NO_GPU}; set {ALLOW_SKIPPED_GPU_TESTS}=1 to skip it", pytrace=False)
    pytest.skip(NO_GPU)


def pytest_terminal_summary(terminalreporter):
    """Report the outcomes of scikit-learn's estimator checks."""
    kinds = ("passed", "failed", "error", "skipped", "xfailed")
    counts = {
        kind: sum(
            "::test_estimator_check[" in report.nodeid
            for report in terminalreporter.getreports(kind)
        )
        for kind in kinds
    }
    if any(counts.values()):
        shown = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        terminalreporter.write_line(f"scikit-learn {sklearn.__version__} estimator checks: {shown}")


@dataclass(frozen=True)
class Root(Loss):
    """A user-defined concave loss: √(a + θ) − √θ."""

    name = "root"
    concave = True

    def _value(self, a):
        return np.sqrt(a + self.theta) - np.sqrt(self.theta)

    def _derivative(self, a):
        return 0.5 / np.sqrt(a + self.theta)


#: Relative errors of the backends: rounding, and sums in another order.
TOLERANCE = {np.float64: 1e-12, np.float32: 2e-5}


def close(got, wanted, dtype, scale=1.0):
    """Equal up to rounding errors; ``scale`` is the size of the largest terms."""
    np.testing.assert_allclose(
        np.asarray(got), np.asarray(wanted), rtol=TOLERANCE[dtype], atol=scale * TOLERANCE[dtype]
    )


def members(protocol):
    """Names and parameters of what a protocol requires; None for a property."""
    required = {}
    for name, member in vars(protocol).items():
        if name.startswith("_"):
            continue
        function = inspect.isfunction(member)
        required[name] = list(inspect.signature(member).parameters) if function else None
    return required


@pytest.fixture
def team():
    with Team(1) as team:
        yield team


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def dtype(request):
    return request.param


def random_problem(m=40, n=30, rank=3, share=0.4, seed=0, dtype=np.float64):
    """Entries of a noisy low-rank matrix with outliers, and unrelated factors."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((m, rank)) @ rng.standard_normal(
        (n, rank)
    ).T + 0.1 * rng.standard_normal((m, n))
    X += 5 * (rng.random((m, n)) < 0.05) * rng.choice([-1, 1], (m, n))
    X[rng.random((m, n)) > share] = np.nan
    U = rng.standard_normal((m, rank))
    V = rng.standard_normal((n, rank))
    return Observed.from_dense(X.astype(dtype)), U.astype(dtype), V.astype(dtype)


@pytest.fixture(params=DEVICES)
def operations_on(request, team, monkeypatch):
    """A function that makes the operations on entries; on the GPU short chunks split rows."""
    if request.param == "cpu":
        return lambda observed: CPUOperations(observed, team)
    from robustmf.backends.cuda import chunks  # noqa: PLC0415 - needs torch
    from robustmf.backends.cuda.observed import DeviceObserved  # noqa: PLC0415
    from robustmf.backends.cuda.operations import CUDAOperations  # noqa: PLC0415

    monkeypatch.setattr(chunks, "MEMORY", replace(chunks.MEMORY, chunk_length=8))
    device = torch.device("cpu" if INTERPRETED else "cuda")
    return lambda observed: CUDAOperations(DeviceObserved.from_host(observed, device), team)


@pytest.fixture
def problem(operations_on, dtype):
    observed, U, V = random_problem(dtype=dtype)
    operations = operations_on(observed)
    return operations, operations.array(U), operations.array(V)


@pytest.fixture(scope="session")
def ratings():
    """Ratings in half stars: 400 users with preferences, 500 items of very unequal popularity."""
    rng = np.random.default_rng(0)
    kinds = rng.integers(6, size=500)
    tastes = rng.dirichlet(np.full(6, 0.6), 400)
    popular = rng.lognormal(sigma=1.2, size=500)
    preference = tastes[:, kinds] * popular
    seen = rng.random(preference.shape) < np.minimum(
        1, preference * (30 * rng.lognormal(sigma=0.6, size=400) / preference.sum(axis=1))[:, None]
    )
    mean = 3.4 + 0.4 * rng.standard_normal((400, 1)) + 0.5 * rng.standard_normal(500)
    mean = mean + 0.5 * rng.standard_normal((400, 3)) @ rng.standard_normal((500, 3)).T
    stars = np.clip(np.rint(2 * (mean + 0.7 * rng.standard_normal(mean.shape))) / 2, 0.5, 5)
    i, j = np.nonzero(seen)
    return Observed.from_triplets(
        row=[f"user {k}" for k in i], col=[f"item {k}" for k in j], value=stars[seen]
    )


class _SharedCluster:
    """A Dask cluster of worker processes, started at its first use."""

    def __init__(self):
        self._started = None

    def get(self):
        import dask  # noqa: PLC0415 - imported only by tests of the cluster
        import distributed  # noqa: PLC0415 - as above

        if self._started is None:
            # After this time LocalCluster closes the nanny of a lost worker that is not running at
            # that moment, even if the worker was replaced meanwhile and has just been lost again.
            dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"})
            self._started = distributed.LocalCluster(
                n_workers=N_WORKERS,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",
                silence_logs=50,
            )
        return self._started

    def close(self):
        if self._started is not None:
            self._started.close()
        self._started = None


_shared_cluster = _SharedCluster()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """Close the cluster after the last test that may use it: it takes a tenth of a core."""
    try:
        return (yield)
    finally:
        if nextitem is None or not nextitem.path.is_relative_to(USE_CLUSTER):
            _shared_cluster.close()


@pytest.fixture(scope="module")
def cluster():
    """The Dask cluster of all tests; workers that were killed are replaced."""
    return _shared_cluster.get()


@pytest.fixture(scope="module")
def client(cluster):
    """A client of the cluster, which has its workers and no others when a module begins."""
    import distributed  # noqa: PLC0415 - imported only by tests of the cluster

    with distributed.Client(cluster) as connected:
        cluster.scale(N_WORKERS)
        deadline = time.monotonic() + 120
        while len(connected.nthreads()) != N_WORKERS:
            assert time.monotonic() < deadline, connected.nthreads()
            time.sleep(0.02)
        yield connected
