"""Compilation of kernels: machine code on disk follows the sources; users are informed once."""

import gc
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from robustmf import kernels
from robustmf.data import compressed
from robustmf.kernels import compilation
from robustmf.kernels.jit import sources_digest

#: Calls a kernel whose callee is in another file, and prints its result and how it was obtained.
SCRIPT = """
import numpy as np
from robustmf.kernels.repair import mean_weights
out = np.zeros(1)
one = np.ones((1, 1))
mean_weights(0, 1, np.array([0, 1]), np.array([0, 1]), np.zeros(1, np.int32), np.ones(1), one, one,
             1.0, out)
print(out[0], sum(mean_weights.stats.cache_hits.values()))
"""


def run(folder: Path) -> list[float]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "nb")}
    environment.pop("COVERAGE_PROCESS_START", None)
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""  # not a terminal: nothing is printed
    return [float(word) for word in done.stdout.split()]


def test_an_edited_callee_never_meets_old_machine_code(tmp_path):
    package = tmp_path / "robustmf"
    shutil.copytree(
        kernels.__path__[0], package / "kernels", ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "__init__.py").write_text("")
    assert run(tmp_path) == [1, 0]  # compiled: no residual, weight 1
    assert run(tmp_path) == [1, 1]  # loaded
    callee = package / "kernels" / "small.py"
    source = callee.read_text()
    assert source.count("s += a[q] * b[q]") == 1
    callee.write_text(source.replace("s += a[q] * b[q]", "s += a[q] * b[q] + 1"))
    assert run(tmp_path) == [pytest.approx(np.exp(-1)), 0]


def test_the_digest_covers_every_file_of_the_kernels(tmp_path, monkeypatch):
    found = {sources_digest()}
    for path in Path(kernels.__path__[0]).glob("*.py"):
        copy = tmp_path / path.stem
        shutil.copytree(kernels.__path__[0], copy, ignore=shutil.ignore_patterns("__pycache__"))
        with (copy / path.name).open("a") as file:
            file.write("#")
        monkeypatch.setattr("robustmf.kernels.jit.__file__", str(copy / "jit.py"))
        found.add(sources_digest.__wrapped__())
    assert len(found) == 1 + len(list(Path(kernels.__path__[0]).glob("*.py"))) > 10


def events(watch, monkeypatch, module, seconds):
    """One function with one callee is compiled; the clock passes ``seconds`` before the callee."""
    clock = iter([0.0, 0.0, seconds, seconds])
    monkeypatch.setattr(compilation.time, "perf_counter", lambda: next(clock))
    function = SimpleNamespace(py_func=SimpleNamespace(__module__=module))
    event = SimpleNamespace(data={"dispatcher": function})
    watch.on_start(event)
    collecting = gc.isenabled()
    watch.on_start(event)
    watch.on_end(event)
    watch.on_end(event)
    return collecting


@pytest.mark.parametrize(
    ("module", "seconds", "reports"),
    [("robustmf.kernels.x", 9.0, 1), ("robustmf.kernels.x", 0.1, 0), ("mine", 9.0, 0)],
)
def test_long_compilation_is_reported_once(monkeypatch, module, seconds, reports):
    reported = []
    monkeypatch.setattr(compilation, "report", lambda: reported.append(1))
    watch = compilation._Watch()
    collecting = [events(watch, monkeypatch, module, seconds) for _ in range(2)]
    assert len(reported) == reports
    assert collecting == [module == "mine"] * 2
    assert gc.isenabled()


def test_garbage_collection_that_is_off_stays_off(monkeypatch):
    gc.disable()
    try:
        events(compilation._Watch(), monkeypatch, "robustmf.kernels.x", 0.0)
        assert not gc.isenabled()
    finally:
        gc.enable()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "notebook", "lines"),
    [(Terminal, False, 1), (io.StringIO, True, 1), (io.StringIO, False, 0)],
)
def test_the_line_is_for_terminals_and_notebooks(monkeypatch, caplog, stream, notebook, lines):
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    if notebook:
        monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
    with caplog.at_level("INFO", logger="robustmf"):
        compilation.report()
    assert sys.stderr.getvalue() == f"{compilation.MESSAGE}\n" * lines
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_process_without_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    compilation.report()


def random_entries(duplicates):
    rng = np.random.default_rng(1)
    cells = rng.choice(40 * 30, 500, replace=duplicates)
    return (cells // 30).astype(np.int32), (cells % 30).astype(np.int32), rng.normal(size=500)


@pytest.mark.parametrize("duplicates", [False, True])
def test_few_entries_are_compressed_as_many_are(monkeypatch, duplicates):
    found = []
    for few in (0, 10**6):
        monkeypatch.setattr(compressed, "FEW", few)
        rows = compressed.compress(*random_entries(duplicates), (40, 31))
        columns = compressed.transpose_compressed(rows, 31, np.dtype("float32"))
        order = compressed.grouping_order(rows, columns)
        found.append((rows, columns, order, compressed._first_repeat(rows)))
    for a, b in zip(found[0][:2], found[1][:2], strict=True):
        for field in ("pointers", "indices", "values"):
            x = getattr(a, field)
            y = getattr(b, field)
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(found[0][2], found[1][2])
    assert found[0][2].dtype == found[1][2].dtype
    assert found[0][3] == found[1][3]
    assert (found[0][3] >= 0) == duplicates
