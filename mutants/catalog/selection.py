"""Splits, cross-validation, held-out entries, hashes of ids."""

from __future__ import annotations

from mutants.mutant import Mutant

_SPLITS = "test_selection.py -k 'split or folds or use'"
_SEARCH = "test_selection.py -k 'score or results or right or best or path'"
_FOLDS = "test_selection.py -k 'seed or folds'"
_HOLDOUT = "data/test_holdout.py"

MUTANTS = [
    Mutant(
        "selection.py",
        "for mask in _masks(observed, bounds, self.random_state):",
        "for mask in _masks(observed, bounds, None):",
        _FOLDS,
        aimed=True,
    ),
    Mutant(
        "selection.py",
        "EntryKFold(self.cv, random_state=self.random_state)",
        "EntryKFold(self.cv)",
        _FOLDS,
        aimed=True,
    ),
    Mutant(
        "selection.py",
        "order = as_generator(random_state).permutation(observed.n_entries)",
        "order = np.arange(observed.n_entries)",
        _SPLITS,
    ),
    Mutant(
        "selection.py",
        "yield observed.select(~mask), observed.select(mask)",
        "yield observed.select(mask), observed.select(~mask)",
        _FOLDS,
        aimed=True,
    ),
    Mutant(
        "selection.py",
        "entry_split(X, (1 - test_size, test_size), random_state)",
        "entry_split(X, (test_size, 1 - test_size), random_state)",
        _SPLITS,
    ),
    Mutant(
        "selection.py",
        'int(np.argmax(self.cv_results_["mean_test_score"]))',
        'int(np.argmin(self.cv_results_["mean_test_score"]))',
        _SEARCH,
    ),
    Mutant(
        "selection.py",
        "(mean[:, None] < mean[None]).sum(axis=1) + 1",
        "(mean[:, None] > mean[None]).sum(axis=1) + 1",
        _SEARCH,
    ),
    Mutant(
        "selection.py", "errors[: max(1, round((1 - TRIMMED) * len(errors)))]", "errors", _SEARCH
    ),
    Mutant("selection.py", "            return models[k - 1]", "            return None", _SEARCH),
    Mutant(
        "selection.py",
        "        numbers, reverse=decreasing\n",
        "        numbers, reverse=not decreasing\n",
        "test_selection.py -k along",
        aimed=True,
    ),
    Mutant(
        "selection.py",
        "    return -float(_held_out_errors(model, test).mean())",
        "    return float(_held_out_errors(model, test).mean())",
        _SEARCH,
    ),
    Mutant(
        "selection.py", "    if (np.diff(bounds, prepend=0) == 0).any():", "    if False:", _SPLITS
    ),
    Mutant(
        "data/holdout.py", "        keys[entries.weights == 0] = 0\n", "        pass\n", _HOLDOUT
    ),
    Mutant(
        "data/holdout.py",
        "            | (part == largest_by_row[entries.rows[block]])\n",
        "",
        _HOLDOUT,
    ),
    Mutant(
        "data/holdout.py",
        "            | (part == largest_by_column[entries.columns[block]])\n",
        "",
        _HOLDOUT,
    ),
    Mutant(
        "data/holdout.py", "return mix(hashes ^ np.uint64(seed))", "return mix(hashes)", _HOLDOUT
    ),
    Mutant(
        "data/holdout.py",
        "return max(1, round(fraction * n_entries))",
        "return max(1, round(fraction * n_entries / 2))",
        _HOLDOUT,
    ),
    Mutant(
        "data/hashing.py",
        "        return key.astimezone(UTC).isoformat()",
        "        return key.isoformat()",
        "data/test_ids.py data/test_holdout.py data/test_hashing.py",
        aimed=True,
    ),
    Mutant(
        "data/hashing.py",
        "_digits(int(key)) if number.is_integer() else repr(number)",
        "repr(number)",
        "data/test_ids.py data/test_holdout.py data/test_hashing.py",
        aimed=True,
    ),
    Mutant(
        "data/ids.py",
        '        if is_missing(key):\n            raise ValueError(\n                f"{self.side} ids',
        '        if False:\n            raise ValueError(\n                f"{self.side} ids',
        "data/test_ids.py answers/test_queries.py",
    ),
    Mutant(
        "data/ids.py",
        'column + 0.0 if kind == "f" else column',
        "column",
        "data/test_ids.py",
    ),
    Mutant(
        "data/ids.py",
        "        if not isinstance(key, str) and str(key) in index_of:",
        "        if False:",
        "data/test_ids.py",
        aimed=True,
    ),
    Mutant(
        "data/ids.py",
        "    _require_one_type_per_id(index_of, side)\n",
        "",
        "data/test_ids.py",
        aimed=True,
    ),
    Mutant(
        "data/holdout.py",
        "int(rng.spawn(1)[0].integers(1 << 62))",
        "int(rng.integers(1 << 62))",
        _HOLDOUT,
        aimed=True,
    ),
    Mutant(
        "selection.py",
        '    results["std_test_score"] = scores.std(axis=1)',
        '    results["std_test_score"] = scores.std(axis=0)',
        _SEARCH,
        aimed=True,
    ),
]
