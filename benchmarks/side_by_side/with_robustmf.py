"""The tasks with robustmf."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from distributed import Client

from benchmarks.side_by_side.tables import Tables
from robustmf import RobustMF, load
from robustmf.selection import RobustMFCV

PACKAGE = "robustmf"
LONG = {"row": "user", "col": "item", "value": "rating"}
NOT_OFFERED: dict[str, str] = {}


def fit(t: Tables) -> Any:
    """Fit my frame; one predicted rating."""
    model = RobustMF(random_state=0).fit(t.ratings, row="user", col="item", value="rating")
    return model.predict("u7", "i3")


def find(t: Tables) -> Any:
    """Find the bad cells; a table of flags."""
    return RobustMF(random_state=0).fit(t.sensors).outlier_scores() < 0.001


def clean(t: Tables) -> Any:
    """Clean a CSV; the written file."""
    out = t.folder / "cleaned.csv"
    command = [sys.executable, "-m", "robustmf", "clean", t.path, "-o", out, "--replace", "--fill"]
    subprocess.run(command, check=True)
    return out


def recommend(t: Tables) -> Any:
    """Recommend for a new user; three items."""
    model = RobustMF(random_state=0).fit(t.ratings, **LONG)
    return model.recommend(ratings=t.new_user, n=3)


def rank(t: Tables) -> Any:
    """Choose a rank."""
    return RobustMF(random_state=0).fit(t.sensors).rank_


def compare(t: Tables) -> Any:
    """Compare a robust loss with least squares; mean absolute errors."""
    search = RobustMFCV("auto", loss=["welsch", "l2"], random_state=0)
    search.fit(t.ratings, **LONG)
    return dict(zip(["welsch", "l2"], -search.cv_results_["mean_test_score"], strict=True))


def page(t: Tables) -> Any:
    """Make a page to look at."""
    return RobustMF(random_state=0).fit(t.sensors).report(t.folder / "page.html")


def save(t: Tables) -> Any:
    """Save and load."""
    RobustMF(random_state=0).fit(t.sensors).save(t.folder / "model.rmf")
    return load(t.folder / "model.rmf")


def cluster(t: Tables) -> Any:
    """Fit on a Dask cluster."""
    with Client(n_workers=2, threads_per_worker=1) as client:
        return RobustMF(2, random_state=0).fit([t.ratings], **LONG, client=client)


def explain(t: Tables) -> Any:
    """Explain a flagged row."""
    report = RobustMF(random_state=0).fit(t.ratings, **LONG).audit()
    return report.rows[0].reason
