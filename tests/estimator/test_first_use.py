"""First contact: what a new user tries with tables of ratings and sensors, and what went wrong.

Each test is one defect that was found that way. Only names that exist in every release are used, so
that the file also runs against earlier versions, where the tests fail: docs/background/ten-tasks.md
lists which test belongs to which defect, and what happens with commit 90051e4.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV
from typer.testing import CliRunner

import robustmf
from robustmf import Observed, RobustMF
from robustmf.cli import app
from robustmf.exceptions import RobustMFWarning, UnknownIdsWarning

ROOT = Path(__file__).parents[2]


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "160"})


@pytest.fixture(scope="module")
def product():
    """The table of products i · j of labels 1 … 20 and 1 … 12."""
    cells = np.outer(np.arange(1.0, 21), np.arange(1.0, 13))
    return pd.DataFrame(cells, index=range(1, 21), columns=range(1, 13))


@pytest.fixture(scope="module")
def ratings():
    """Ratings of 1 … 5 by 60 users, in no order; user and item effects, and noise."""
    rng = np.random.default_rng(0)
    cells = 3.4 + rng.normal(size=(60, 1)) + rng.normal(size=25) + 0.7 * rng.normal(size=(60, 25))
    cells = np.clip(np.rint(cells), 1, 5)
    user, item = np.nonzero(rng.random(cells.shape) < 0.5)
    table = pd.DataFrame({"user": user, "item": item, "rating": cells[user, item]})
    return table.sample(frac=1, random_state=0)


@pytest.fixture(scope="module")
def observed(ratings):
    return Observed.from_triplets(ratings, row="user", col="item", value="rating")


# 1. Labels of wide tables


def test_1_labels_of_a_wide_table_are_not_positions(product):
    model = RobustMF(1, random_state=0).fit(product)
    assert model.predict(3, 4) == pytest.approx(12, rel=1e-3)
    assert model.recommend(20, n=1, exclude_seen=False).items.tolist() == [12]
    bad = product.copy()
    bad.loc[7, 5] += 300
    worst = RobustMF(1, random_state=0).fit(bad).audit(top=1).entries[0]
    assert (worst.row, worst.column) == (7, 5)


def test_1_labels_may_be_text(product):
    named = product.add_prefix("c").rename(index="r{}".format)
    model = RobustMF(1, random_state=0).fit(named)
    assert model.predict("r3", "c4") == pytest.approx(12, rel=1e-3)


# 2. Order of scores


def test_2_scores_are_aligned_with_the_frame(ratings):
    frame = ratings.assign(rating=(ratings["user"] + 1.0) * (ratings["item"] + 1))
    frame.iloc[17, 2] += 900
    entries = Observed.from_triplets(frame, row="user", col="item", value="rating")
    frame["score"] = RobustMF(1, random_state=0).fit(entries).outlier_scores()
    assert frame["score"].idxmin() == frame.index[17]


# 3. Long and wide are distinguished


def test_3_a_long_frame_is_not_fitted_as_a_matrix_of_ids(ratings):
    with pytest.raises(ValueError, match="row='user', col='item', value='rating'"):
        RobustMF(1).fit(ratings)


def test_3_a_wide_file_is_not_read_as_a_long_one(product, tmp_path):
    path = tmp_path / "sensors.csv"
    sensors = product.iloc[:, :5].add_prefix("s")
    sensors.iloc[3, 2] += 100
    sensors.rename_axis("time").to_csv(path)
    result = run("audit", path, "--rank", 1, "--no-bias", "--json")
    assert result.exit_code == 0, result.output
    assert re.search(r'"row": 4,\s+"column": "s3"', result.stdout)


def test_3_a_wide_file_with_a_code_for_missing_values(tmp_path):
    path = tmp_path / "jester.csv"
    cells = np.outer(np.linspace(-2, 4, 30), np.linspace(1, 2.5, 8)).round(2)
    missing = np.random.default_rng(0).random(cells.shape) < 0.3
    np.savetxt(path, np.where(missing, 99, cells), delimiter=",", fmt="%g")
    result = run("audit", path, "--wide", "--missing", 99, "--rank", 1, "--no-bias")
    assert result.exit_code == 0, result.output
    assert f"{np.count_nonzero(~missing)} entries" in result.output


# 4. Nullable columns


@pytest.mark.parametrize("dtype", ["Float64", "double[pyarrow]"])
def test_4_nullable_columns_with_missing_values(product, dtype):
    nullable = product.astype(dtype)
    nullable.loc[3, 4] = pd.NA
    assert RobustMF(1, random_state=0).fit(nullable).predict(3, 4) == pytest.approx(12, rel=1e-3)


# 5. Least squares as a comparison


def test_5_least_squares_at_its_defaults_is_a_fair_comparison():
    """At most 2 % worse on held-out ratings than with biases and the best of a grid of λ."""
    rng = np.random.default_rng(1)
    cells = 3.5 + 0.4 * rng.normal(size=(200, 1)) + 0.5 * rng.normal(size=100)
    cells += 0.4 * rng.normal(size=(200, 2)) @ rng.normal(size=(2, 100))
    cells = np.clip(np.rint(cells + 0.8 * rng.normal(size=cells.shape)), 1, 5)
    part = rng.random(cells.shape)
    train = np.where(part < 0.2, cells, np.nan)
    i, j = np.nonzero((part >= 0.2) & (part < 0.4))

    def error(**settings):
        model = RobustMF(10, loss="l2", random_state=0, **settings).fit(train)
        return np.sqrt(np.mean((model.predict(i, j) - cells[i, j]) ** 2))

    assert error() < 1.02 * min(error(bias=True, reg=reg) for reg in (3.0, 10.0, 30.0))


# 6. Documentation

#: Extras with what the documentation needs, and peers of benchmarks, which it does not run.
EXTRAS = ("docs", "plot", "dask", "bench")


def test_6_the_extra_of_the_documentation_has_what_its_pages_import():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = project["dependencies"] + [
        one for extra in EXTRAS for one in project["optional-dependencies"][extra]
    ]
    names = re.findall(r"[A-Za-z][\w-]*", " ".join(required))  # those in brackets, too
    provided = {name.lower().replace("-", "_") for name in names} | {"robustmf", "sklearn"}
    code = "\n".join(
        block
        for page in (ROOT / "docs").rglob("*.md")
        for block in re.findall(r"^```python[^\n]*\n(.*?)^```", page.read_text(), re.M | re.S)
    )
    tools = {path.stem for path in (ROOT / "docs" / "tools").glob("*.py")}
    assert imported_by(code) - provided - tools - set(sys.stdlib_module_names) == set()


def imported_by(code):
    """Packages that code imports when it is executed, also by way of modules of the checkout."""
    packages = set()
    files = []
    for node in ast.walk(ast.parse(code)):
        modules = []
        if isinstance(node, ast.Import):
            modules = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [f"{node.module}.{one.name}" for one in node.names]
        for module in modules:
            path = ROOT / module.replace(".", "/")
            candidates = (path.with_suffix(".py"), path.parent.with_suffix(".py"))
            files.extend(one for one in candidates if one.exists())
            if not (ROOT / module.split(".")[0]).is_dir():
                packages.add(module.split(".")[0])
    return packages.union(*(imported_by(one.read_text()) for one in files))


def test_6_the_guide_does_not_repeat_figures_of_the_benchmarks():
    """They contradicted those of the design pages; now its figures are printed by its own code."""
    text = (ROOT / "docs" / "guides" / "choosing.md").read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    assert not re.findall(r"error is 0\.\d+|0\.\d{3} with", prose)


# 7. Smaller ones

TERMINAL = SimpleNamespace(isatty=lambda: True)


def test_7_recommendations_are_within_the_scale(observed):
    model = RobustMF(2, bias=True, reg=0.1, random_state=0).fit(observed)
    best = [model.recommend(user, n=3).scores for user in range(60)]
    assert np.nanmax(best) == 5


def test_7_recommendations_are_within_a_scale_of_which_few_use_the_lower_end():
    """Half stars with the shares that they have in MovieLens: 1 to 3 % for each below 2."""
    rng = np.random.default_rng(3)
    cells = 3.7 + 0.4 * rng.normal(size=(100, 1)) + 0.6 * rng.normal(size=60)
    cells = np.clip(np.rint(2 * (cells + 0.9 * rng.normal(size=(100, 60)))) / 2, 0.5, 5)
    user, item = np.nonzero(rng.random(cells.shape) < 0.3)
    assert 0 < np.mean(cells[user, item] == 0.5) < 0.03
    stars = Observed.from_triplets(row=user, col=item, value=cells[user, item])
    model = RobustMF(2, bias=True, reg=0.1, random_state=0).fit(stars)
    best = [model.recommend(k, n=3).scores for k in range(100)]
    assert np.nanmax(best) == 5


def test_7_the_share_of_bad_entries_is_not_zero_where_some_are_listed(product):
    cells = product.to_numpy() + 0.1 * np.random.default_rng(0).normal(size=product.shape)
    large = np.tile(cells, (12, 1))
    large[5, 7] += 300
    report = RobustMF(1, random_state=0).fit(large).audit()
    assert len(report.entries) >= 1
    assert "About 0.0 %" not in str(report)


def test_7_a_model_of_the_command_line_is_silent_in_python(ratings, tmp_path, monkeypatch):
    ratings.to_csv(tmp_path / "ratings.csv", index=False)
    run("fit", "--help")  # imports the modules of the command
    for name, module in list(sys.modules.items()):
        if name.startswith("robustmf.cli") and hasattr(module, "sys"):
            monkeypatch.setattr(f"{name}.sys", SimpleNamespace(stderr=TERMINAL, stdout=TERMINAL))
    path = tmp_path / "model.rmf"
    result = run("fit", tmp_path / "ratings.csv", "--rank", 1, "--max-iter", 5, "-o", path)
    assert result.exit_code == 0, result.output
    assert robustmf.load(path).verbose == 0


def test_7_unknown_ids_do_not_prevent_scores_of_the_others(ratings, observed):
    model = RobustMF(1, random_state=0).fit(observed)
    some = ratings.head(50).copy()
    some.loc[some.index[:2], "user"] = [1000, 1001]
    entries = Observed.from_triplets(some, row="user", col="item", value="rating")
    with pytest.warns(UnknownIdsWarning, match="2 of 50"):
        scores = np.asarray(model.outlier_scores(entries))
    assert np.isnan(scores).sum() == 2


def test_7_an_unknown_item_is_named(product):
    named = product.add_prefix("c").rename(index="r{}".format)
    entries = Observed.from_triplets(
        row=np.repeat(named.index, 12), col=np.tile(named.columns, 20), value=np.ravel(named)
    )
    with pytest.raises(ValueError, match="'Star Wars'"):
        RobustMF(1, random_state=0).fit(entries).similar_items("Star Wars")


def test_7_data_sets_are_reached_from_the_package():
    code = "import robustmf; print(robustmf.datasets.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "robustmf.datasets\n", done.stderr


def test_7_a_tolerance_of_zero_runs_all_iterations(product):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustMFWarning)
        model = RobustMF(1, tol=0, max_iter=7, random_state=0).fit(product + 0.01)
    assert model.n_iter_ <= 7


def test_7_errors_name_the_class_of_the_user():
    with pytest.raises(TypeError, match=r"^RobustMF\.fit\(\)"):
        RobustMF(1).fit()


def test_7_help_and_readme_agree_on_the_installation():
    command = "pip install robustmf"
    assert command in run("--help").output
    assert command in (ROOT / "README.md").read_text()


def test_7_a_search_warns_once_and_takes_entries(ratings, observed, product):
    search = GridSearchCV(RobustMF(1, random_state=0), {"reg": [0.1, 1.0]}, cv=2)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        search.fit(product.assign(empty=np.nan).to_numpy())
    own = [one.category for one in issued if issubclass(one.category, RobustMFWarning)]
    assert own
    assert len(own) == len(set(own)), "each kind of warning once"
    assert search.fit(observed).best_params_["reg"] in (0.1, 1.0)


SEARCH = """
import sys
import numpy as np
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from robustmf import RobustMF

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X = np.outer(rng.normal(size=30), rng.normal(size=8))
    X[:, 3] = np.nan
    model = RobustMF(1, random_state=0, n_jobs=1)
    if sys.argv[1] == "search":
        GridSearchCV(model, {"reg": [0.1, 1.0, 2.0]}, cv=3, n_jobs=2).fit(X)
    elif sys.argv[1] == "pipeline":
        cross_val_score(make_pipeline(model), X, cv=4, n_jobs=2)
    else:
        for _ in range(2):
            search = GridSearchCV(model, {"reg": [1.0]}, cv=2, n_jobs=2, refit=False).fit(X)
"""


@pytest.mark.parametrize(("kind", "times"), [("search", 1), ("pipeline", 1), ("twice", 2)])
def test_7_a_search_in_two_processes_warns_once(tmp_path, kind, times):
    path = tmp_path / "search.py"
    path.write_text(SEARCH)
    # "always": the processes of the second search have issued the same text before
    command = [sys.executable, "-W", "always", path, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(re.findall("EmptyRowsWarning", done.stderr)) == times, done.stderr
