"""The tasks with implicit, which models clicks: a rating is how sure a "yes" is."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from implicit.als import AlternatingLeastSquares
from implicit.cpu.als import AlternatingLeastSquares as CPUModel
from implicit.evaluation import mean_average_precision_at_k

from benchmarks.side_by_side.tables import Tables

PACKAGE = "implicit"
NOT_OFFERED = {
    "find": "values are confidences; no residuals of measurements",
    "clean": "values are not predicted",
    "compare": "one loss for ratings; other models rank",
    "page": "no page or plot",
    "cluster": "one machine, GPU",
}


def _matrix(table: Any) -> tuple[Any, Any, Any]:
    users, items = table["user"].astype("category"), table["item"].astype("category")
    codes = users.cat.codes, items.cat.codes
    matrix = sp.csr_matrix((table["rating"], codes))
    return matrix, list(users.cat.categories), list(items.cat.categories)


def fit(t: Tables) -> Any:
    """Fit my frame; one predicted rating."""
    users, items = t.ratings["user"].astype("category"), t.ratings["item"].astype("category")
    codes = users.cat.codes, items.cat.codes
    matrix = sp.csr_matrix((t.ratings["rating"], codes))
    model = AlternatingLeastSquares(factors=8, random_state=0)
    model.fit(matrix, show_progress=False)
    row, column = users.cat.categories.get_loc("u7"), items.cat.categories.get_loc("i3")
    return model.user_factors[row] @ model.item_factors[column]


def recommend(t: Tables) -> Any:
    """Recommend for a new user; three items."""
    matrix, _, items = _matrix(t.ratings)
    model = AlternatingLeastSquares(factors=8, random_state=0)
    model.fit(matrix, show_progress=False)
    columns = [items.index(item) for item in t.new_user]
    zeros = np.zeros(len(columns), int)
    row = sp.csr_matrix((list(t.new_user.values()), (zeros, columns)), shape=(1, len(items)))
    codes, scores = model.recommend(0, row, N=3, recalculate_user=True)
    return [(items[code], score) for code, score in zip(codes, scores, strict=True)]


def rank(t: Tables) -> Any:
    """Choose a rank."""
    matrix, users, items = _matrix(t.ratings)
    rows = [users.index(user) for user in t.held_out["user"]]
    columns = [items.index(item) for item in t.held_out["item"]]
    test = sp.csr_matrix((t.held_out["rating"], (rows, columns)), shape=matrix.shape)
    train = matrix - test
    train.eliminate_zeros()
    found = {}
    for factors in (1, 2, 3, 5, 10):
        model = AlternatingLeastSquares(factors=factors, random_state=0)
        model.fit(train, show_progress=False)
        found[factors] = mean_average_precision_at_k(model, train, test, show_progress=False)
    return max(found, key=found.get)


def save(t: Tables) -> Any:
    """Save and load."""
    model = AlternatingLeastSquares(factors=8, random_state=0)
    model.fit(_matrix(t.ratings)[0], show_progress=False)
    model.save(t.folder / "model.npz")
    return CPUModel.load(t.folder / "model.npz")


def explain(t: Tables) -> Any:
    """Explain a flagged row."""
    matrix, users, items = _matrix(t.ratings)
    model = AlternatingLeastSquares(factors=8, random_state=0)
    model.fit(matrix, show_progress=False)
    _, causes, _ = model.explain(users.index("u190"), matrix, items.index("i0"), N=3)
    return [(items[code], weight) for code, weight in causes]
