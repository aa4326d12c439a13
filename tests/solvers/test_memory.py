"""The memory that a fit is estimated to take, against the peak of a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from robustmf import RobustMF

_PEAK = """
import sys, numpy as np
from robustmf import RobustMF, Observed
from robustmf.data.observed import Compressed
small = np.random.default_rng(0).standard_normal((50, 40)).astype("f4")
settings = {"solver": sys.argv[1], "loss": sys.argv[2], "theta": 1.0, "init": "ridge"}
settings |= {"max_iter": 2, "tol": 1e-9}
RobustMF(8, **settings).fit(small)
m = int(sys.argv[4])
n, per_row = m // 3, 100
rng = np.random.default_rng(0)
step = n // per_row
columns = rng.integers(0, step, (m, per_row), dtype=np.int32)
columns = (columns + np.arange(0, n, step, dtype=np.int32)).ravel()
def read(name):
    lines = [line for line in open("/proc/self/status") if line.startswith(name)]
    return int(lines[0].split()[1]) * 1024
open("/proc/self/clear_refs", "w").write("5")  # reset the peak
before = read("VmRSS")
values = rng.standard_normal(m * per_row, dtype=np.float32)
pointers = np.arange(0, m * per_row + 1, per_row)
observed = Observed(Compressed(pointers, columns.copy(), values), (m, n))
del columns
model = RobustMF(8, reg=1.0, validation_fraction=float(sys.argv[3]) or None, **settings)
model.fit(observed)
print(model.memory_estimate(observed), read("VmHWM") - before + 4 * m * per_row)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("solver", "loss", "held_out"),
    [("irls", "welsch", "0"), ("mm", "lsp", "0"), ("irls", "welsch", "0.1")],
)
def test_memory_estimate_is_within_a_fifth_of_the_peak(solver, loss, held_out):
    # a clean environment: the workers of Dask in other tests leave settings of the allocator behind
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    # small data first: a process that compiles keeps pages of the compiler, which the fit reuses
    for m in ("1200", "30000"):
        command = [sys.executable, "-W", "ignore", "-c", _PEAK, solver, loss, held_out, m]
        out = subprocess.run(
            command, capture_output=True, text=True, check=True, env=plain
        ).stdout.split()
    estimate, peak = map(int, out)
    assert 0.8 * peak <= estimate <= 1.2 * peak, (estimate, peak)


_CONVERSION_PEAK = """
import sys, numpy as np
from robustmf import RobustMF, Observed
make, kind = sys.argv[1:]
def convert(i, j, values):
    if make == "indices":
        return Observed.from_indices(i, j, values, (60_000, 20_000))
    return Observed.from_triplets(row=i, col=j, value=values)
few = np.arange(100_000, dtype=kind)  # from here on by compiled kernels
convert(few // 10 * 3, few % 10, np.ones(len(few), "f4"))
def read(name):
    lines = [line for line in open("/proc/self/status") if line.startswith(name)]
    return int(lines[0].split()[1]) * 1024
open("/proc/self/clear_refs", "w").write("5")  # reset the peak
before = read("VmRSS")
rng = np.random.default_rng(0)
i = np.repeat(np.arange(60_000, dtype=kind), 100)
j = rng.integers(0, 200, (60_000, 100), dtype=kind)
j = (j + np.arange(0, 20_000, 200, dtype=kind)).ravel()
values = rng.standard_normal(len(i), dtype=np.float32)
observed = convert(i, j, values)
source = 2 * i.itemsize + 4 + (8 if make == "triplets" else 0)
estimate = RobustMF(1, init="ridge").memory_estimate(observed, source_bytes=source)
print(estimate, read("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("make", "kind"), [("indices", "i4"), ("indices", "i8"), ("triplets", "i8")]
)
def test_memory_estimate_covers_the_conversion(make, kind):
    out = subprocess.run(
        [sys.executable, "-c", _CONVERSION_PEAK, make, kind],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    estimate, peak = map(int, out)
    assert 0.8 * peak <= estimate <= 1.2 * peak, (estimate, peak)


def test_memory_estimate_by_shape_and_number_of_entries():
    model = RobustMF(10)
    assert (
        1.6e9
        < model.memory_estimate(shape=(480_189, 17_770), n_entries=100_000_000, dtype="float32")
        < 3e9
    )
    with pytest.raises(ValueError, match="needs X, or shape"):
        model.memory_estimate()
