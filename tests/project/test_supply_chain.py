"""Safety: the package runs no code that it reads, checks what it downloads, extracts nothing."""

import ast
import re
from pathlib import Path

import pytest

import robustmf
from robustmf.datasets import catalog, finding

SOURCE = Path(robustmf.__file__).parent
TREES = {
    path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text())
    for path in sorted(SOURCE.rglob("*.py"))
}

#: Modules that run code when they read.
UNSAFE = {
    "pickle",
    "cPickle",
    "_pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "yaml",
    "torch.serialization",
}

UNSAFE_CALLS = {"pickle.load", "pickle.loads", "joblib.load", "torch.load", "eval", "os.system"}


def _imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _calls(tree):
    """Calls by their dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_nothing_that_unpickles_is_imported_or_called():
    for path, tree in TREES.items():
        assert not (UNSAFE | {"joblib.load", "joblib.dump"}) & set(_imports(tree)), path
        for name, call in _calls(tree):
            assert name not in UNSAFE_CALLS, f"{path}: {name}"
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert name not in ("np.load", "numpy.load") or "allow_pickle" in given, (
                f"{path}: {ast.unparse(call)}"
            )
            assert given.get("allow_pickle", "False") == "False", f"{path}: {ast.unparse(call)}"
            assert "shell" not in given, f"{path}: {ast.unparse(call)}"


def test_code_is_generated_only_from_formulas_of_losses():
    runs = {path for path, tree in TREES.items() if any(name == "exec" for name, _ in _calls(tree))}
    assert runs == {"backends/cpu/compiled_loss.py", "backends/cuda/expression.py"}


def test_archives_are_never_extracted():
    called = {name.rpartition(".")[2] for tree in TREES.values() for name, _ in _calls(tree)}
    assert not {"extractall", "extract", "unpack_archive"} & called


def test_every_download_is_https_and_has_a_checksum():
    archives = [archive for data in catalog.KNOWN.values() for archive in data.archives]
    assert len(archives) >= 7
    for archive in archives:
        assert archive.url.startswith("https://")
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", archive.checksum)
    fetchers = {
        path
        for path, tree in TREES.items()
        if {"pooch", "requests", "urllib.request", "http.client", "socket"} & set(_imports(tree))
    }
    assert fetchers == {"datasets/finding.py"}


def test_an_address_without_encryption_is_refused(tmp_path):
    unencrypted = catalog.Archive("http://example.org/a.zip", "sha256:" + "0" * 64)
    with pytest.raises(
        ValueError, match=r"must be fetched over HTTPS, got http://example\.org/a\.zip"
    ):
        finding.fetch(catalog.MOVIELENS["100k"], unencrypted, tmp_path)


def test_a_job_runs_the_tests_with_pre_releases_of_the_dependencies():
    workflows = Path(__file__).parents[2] / ".github" / "workflows"
    text = (workflows / "prerelease.yml").read_text()
    assert "schedule:" in text
    (command,) = re.findall(r"pip install --pre [^:]*?\n(.*)\n", text)
    names = {"numpy", "scipy", "numba", "scikit-learn", "threadpoolctl", "distributed"}
    assert names <= set(command.split())
    assert "make test" in text[text.index(command) :]
