"""Parameters, fits that continue, labels of other matrices, and answers."""

from __future__ import annotations

from mutants.mutant import Mutant

_BATCHES = "estimator/test_partial_fit.py"
_LABELS = "answers/test_matching_of_labels.py -k 'default or labels or lines'"
_PARAMETERS = "estimator/test_callbacks_and_validation.py -k bad_parameters"
_QUERIES = "answers/test_queries.py -k 'recommendations or residuals or bounds'"
_QUERIES_ALL = "answers/test_queries.py"
_TABLES = (
    "answers/test_tables_in_and_out.py answers/test_matching_of_labels.py "
    "answers/test_odd_tables.py"
)

MUTANTS = [
    Mutant(
        "estimator/training.py",
        "    grown = observed.n_entries >= OPTIONS.growth * model.n_entries_initialized",
        "    grown = False",
        _BATCHES + " -k doubled",
    ),
    Mutant(
        "estimator/training.py",
        '        and estimator.bias in ("auto", model.factors.has_bias)\n',
        "",
        _BATCHES + " -k another_rank",
    ),
    Mutant(
        "estimator/training.py",
        "        elif ignore_given_init and not isinstance(estimator.init, str):",
        "        elif False:",
        _BATCHES + " -k 'given_init or another_rank'",
    ),
    Mutant(
        "estimator/parameters.py",
        "    if estimator.nonnegative and _bias(estimator) is True:",
        "    if False:",
        "estimator/test_nonnegative.py -k refused_by_name",
    ),
    Mutant(
        "estimator/parameters.py",
        '    require_integer("patience", estimator.patience, 1)\n',
        "",
        _PARAMETERS,
    ),
    Mutant(
        "estimator/parameters.py",
        'require_positive("tol", estimator.tol, zero=True)',
        'require_positive("tol", estimator.tol)',
        "estimator/test_callbacks_and_validation.py -k tolerance_of_zero",
    ),
    Mutant(
        "data/labels.py",
        "np.where((numbers >= 0) & (numbers < n_known), numbers, UNKNOWN)",
        "np.where(numbers < n_known, numbers, UNKNOWN)",
        "answers/test_matching_of_labels.py -k numbers_beyond",
    ),
    Mutant("data/labels.py", "        if unknown:", "        if False:", _LABELS),
    Mutant(
        "answers/recommendations.py",
        "    ratings = {key: value for key, value in ratings.items() if not is_missing(value)}\n",
        "",
        "answers/test_cleaning.py -k missing_ratings",
    ),
    Mutant(
        "answers/recommendations.py",
        "    scores += row_bias[:, None]",
        "    pass",
        _QUERIES,
    ),
    Mutant(
        "answers/recommendations.py",
        "    scores[is_unranked] = np.nan",
        "    pass",
        "answers/test_queries.py -k 'known_users or recommendations'",
    ),
    Mutant(
        "answers/errors.py",
        "observed.to_host().rows.values - model.clip(predicted)",
        "observed.to_host().rows.values - predicted",
        "answers/test_queries.py -k clipped",
    ),
    Mutant(
        "backends/cpu/blas.py",
        "    _users[:] = [user for user in _users if user == get_ident()]",
        "    pass",
        "backends/test_blas.py -k 'fork or forked or forks'",
    ),
    Mutant(
        "backends/cpu/blas.py",
        "        if not _users:\n            _limits_before",
        "        if True:\n            _limits_before",
        "backends/test_blas.py -k 'user or users'",
    ),
    Mutant(
        "answers/recommendations.py",
        "    seen = observed_pairs(entries, np.arange(len(T))) if exclude_seen else None",
        "    seen = None",
        _QUERIES_ALL,
    ),
    Mutant(
        "answers/recommendations.py",
        "(ratings < low) | (ratings > high)",
        "ratings > high",
        "answers/test_cleaning.py" + " " + _QUERIES_ALL,
    ),
    Mutant(
        "answers/recommendations.py",
        "    ranked = Ranked(*(of_rows[order] for of_rows in ranked))\n",
        "",
        "answers/test_cleaning.py" + " " + _TABLES,
    ),
    Mutant(
        "data/ranking.py",
        "best[np.lexsort((best, -row[best]))]",
        "best[np.argsort(-row[best])]",
        _QUERIES_ALL,
    ),
    Mutant(
        "data/ranking.py",
        "np.clip(found.scores, -1, 1)",
        "found.scores",
        _QUERIES_ALL,
    ),
    Mutant(
        "data/table_form.py",
        "frame.with_columns(nw.when(~column.is_nan()).then(column) for column in columns)",
        "frame.with_columns(columns)",
        _TABLES,
    ),
    Mutant(
        "data/table_form.py",
        "self.has_row_index and len(self.index) == len(values):",
        "self.has_row_index:",
        _TABLES + " " + "outliers/test_outliers.py",
    ),
    Mutant(
        "data/table_form.py",
        "            made = made.astype(self.dtype)",
        "            pass",
        _TABLES,
    ),
    Mutant(
        "data/table_form.py",
        "rows[np.sort(first)]",
        "rows[first]",
        _TABLES,
    ),
    Mutant(
        "data/alignment.py",
        "table.values[rows][:, columns]",
        "table.values[rows]",
        _TABLES,
    ),
    Mutant(
        "data/alignment.py",
        "len(given) != size or not position",
        "not position",
        _TABLES,
    ),
    Mutant(
        "answers/matrices.py",
        '(columns != UNKNOWN) & _has_entries(model, "column")[columns]',
        "columns != UNKNOWN",
        "answers/test_cleaning.py" + " " + _TABLES,
    ),
    Mutant(
        "answers/matrices.py",
        "observed.rows.counts > 0",
        "observed.rows.counts >= 0",
        "answers/test_cleaning.py" + " " + _TABLES,
    ),
    Mutant(
        "outliers/cleaning.py",
        "found <= at_most",
        "found < at_most",
        "answers/test_cleaning.py" + " " + _TABLES,
    ),
    Mutant(
        "outliers/cleaning.py",
        "form.with_values(X, values[form.lines])",
        "form.with_values(X, values)",
        "answers/test_cleaning.py" + " " + _TABLES,
    ),
    Mutant(
        "validation.py",
        "    if not low < high:",
        "    if not low <= high:",
        _QUERIES_ALL,
    ),
    Mutant(
        "answers/errors.py",
        "observed.to_host().rows.values - model.clip(predicted)",
        "observed.to_host().rows.values - predicted",
        _QUERIES_ALL + " " + "estimator/test_sklearn.py",
    ),
    Mutant(
        "data/checks.py",
        "        if len(lines) > observed.n_entries:",
        "        if False:",
        _TABLES,
    ),
    Mutant(
        "data/checks.py",
        "        given[lines] = of_lines",
        "        given[:] = of_lines[lines]",
        _TABLES,
    ),
    Mutant(
        "data/checks.py",
        "(0 < largest < low and not new)",
        "(0 < largest < low)",
        "estimator/test_numerical_range.py",
    ),
    Mutant(
        "data/ids.py",
        "    if isinstance(key, tuple):\n        return any(map(is_missing, key))\n",
        "",
        "data/test_ids.py",
        aimed=True,
    ),
    Mutant(
        "data/ids.py",
        '"s" if datetime in self._types else "D"',
        '"D"',
        "data/test_ids.py",
        aimed=True,
    ),
    Mutant(
        "data/ids.py",
        '            return times.cast(pa.timestamp("us", times.type.tz))',
        "            pass",
        "data/test_ids.py" + " " + _TABLES,
    ),
    Mutant(
        "data/tables.py",
        " and not sp.issparse(X)",
        "",
        _QUERIES_ALL,
        aimed=True,
    ),
]
