"""The package as a whole: what it imports, what its commands print."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from typer.testing import CliRunner

import robustmf
from robustmf.cli import app
from robustmf.scikit import postponed


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def modules_after(code, names):
    return python(f"import sys; {code}; print([m for m in {names!r} if m in sys.modules])").strip()


def test_import_is_light():
    assert modules_after("import robustmf", ["sklearn", "numba", "matplotlib", "pandas", "torch", "dask", "plotly", "rich"]) == "[]"
    # scikit-learn itself imports the first two
    fit = "import numpy as np; from robustmf import RobustMF; RobustMF(1).fit(np.eye(9))"
    assert modules_after(fit, ["scipy.stats", "pandas", "matplotlib", "torch", "dask", "plotly", "rich"]) == "[]"


def test_statistics_are_there_when_they_are_asked_for():
    use = "from sklearn.utils.fixes import _mode; print(_mode(np.array([1, 2, 2]), 0).mode, scipy.stats.norm.cdf(0))"
    assert python(f"import numpy as np; from robustmf import RobustMF; import scipy; {use}").split()[-1] == "0.5"
    kept = python("import scipy.stats as before; from robustmf import RobustMF; import scipy.stats as after; print(after is before)")
    assert kept.strip() == "True"


def test_who_imports_statistics_meanwhile_has_them():
    code = """
from robustmf.scikit import postponed
with postponed("scipy.stats"):
    import scipy.stats as early
    import scipy.stats.distributions
    from scipy.stats import norm
import scipy.stats
print(early.norm is norm is scipy.stats.norm, early is scipy.stats)
import pandas
with postponed("pandas"), postponed("no_such_module"):
    import pandas as again
    try:
        import no_such_module
    except ModuleNotFoundError:
        print(again is pandas)
"""
    assert python(code).split() == ["True", "False", "True"]


def test_a_module_that_another_thread_began_to_import_is_left_alone(monkeypatch):
    begun = ModuleType("robustmf_begun")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: sys.modules.setdefault(name, begun))
    with postponed("robustmf_begun"):
        assert sys.modules["robustmf_begun"] is begun
    assert sys.modules.pop("robustmf_begun") is begun


def test_public_names():
    for name in robustmf.__all__:
        assert getattr(robustmf, name).__module__.startswith("robustmf.")
    assert set(robustmf.__all__) < set(dir(robustmf))
    assert re.fullmatch(r"\d+\.\d+\.\d+", robustmf.__version__)


def test_demo_ends_in_a_table_and_a_page(tmp_path):
    page = tmp_path / "demo.html"
    result = CliRunner().invoke(app, ["demo", "--size", "150", "--page", str(page)], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert "oracle" in result.output
    assert re.search(r"\d+ of \d+", result.output)
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "http-equiv" not in text
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="http', text), "nothing is loaded from elsewhere"


def test_readme_example_does_what_it_says():
    code = re.search(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.S).group(1)
    shown = python(code + "\nclean = X - 50 * ((X - model.inverse_transform(model.row_factors_)) > 25)"
                   "\nprint(np.nanmax(np.abs(clean - model.inverse_transform(model.row_factors_))))").split()  # fmt: skip
    assert float(shown[-1]) < 0.5
    assert "entries are bad" in " ".join(shown)
