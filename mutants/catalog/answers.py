"""Parameters, fits that continue, labels of other matrices, and answers."""

from __future__ import annotations

from mutants.mutant import Mutant

_BATCHES = "estimator/test_partial_fit.py"
_LABELS = "answers/test_matching_of_labels.py -k 'default or labels or lines'"
_PARAMETERS = "estimator/test_callbacks_and_validation.py -k bad_parameters"
_QUERIES = "answers/test_queries.py -k 'recommendations or residuals or bounds'"

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
        "answers/test_cleaning.py -k new_user",
    ),
    Mutant(
        "answers/recommendations.py",
        "(ratings < low) | (ratings > high)",
        "ratings > high",
        "answers/test_matching_of_labels.py -k outside",
    ),
    Mutant(
        "answers/recommendations.py",
        "    ranked = Ranked(*(of_rows[order] for of_rows in ranked))\n",
        "",
        "answers/test_matching_of_labels.py -k 'matched_by_name or in_their_order'",
    ),
    Mutant(
        "data/ranking.py",
        "best[np.lexsort((best, -row[best]))]",
        "best[np.argsort(-row[best])]",
        "answers/test_queries.py -k ties",
    ),
    Mutant(
        "data/ranking.py",
        "np.clip(found.scores, -1, 1)",
        "found.scores",
        "answers/test_queries.py -k similar",
    ),
    Mutant(
        "data/table_form.py",
        "frame.with_columns(nw.when(~column.is_nan()).then(column) for column in columns)",
        "frame.with_columns(columns)",
        "answers/test_tables_in_and_out.py -k null_where",
    ),
    Mutant(
        "data/table_form.py",
        "            made = made.astype(self.dtype)",
        "            pass",
        "answers/test_tables_in_and_out.py -k nullable",
    ),
    Mutant(
        "data/table_form.py",
        "rows[np.sort(first)]",
        "rows[first]",
        "answers/test_matching_of_labels.py -k in_their_order",
    ),
    Mutant(
        "data/alignment.py",
        "table.values[rows][:, columns]",
        "table.values[rows]",
        "answers/test_matching_of_labels.py -k weights",
    ),
    Mutant(
        "data/alignment.py",
        "len(given) != size or not position",
        "not position",
        "answers/test_matching_of_labels.py -k weights",
    ),
    Mutant(
        "answers/matrices.py",
        '[i] & _has_entries(model, "column")[j]',
        "[i]",
        "answers/test_matching_of_labels.py -k imputed",
    ),
    Mutant(
        "answers/matrices.py",
        "observed.rows.counts > 0",
        "observed.rows.counts >= 0",
        "answers/test_matching_of_labels.py answers/test_cleaning.py -k impute",
    ),
    Mutant(
        "outliers/cleaning.py",
        "found <= at_most",
        "found < at_most",
        "answers/test_cleaning.py",
    ),
    Mutant(
        "outliers/cleaning.py",
        "form.with_values(X, form.per_line(values)), mask",
        "form.with_values(X, form.per_line(values)), ~mask",
        "answers/test_cleaning.py -k long",
    ),
    Mutant(
        "validation.py",
        "    if not low < high:",
        "    if not low <= high:",
        "answers/test_queries.py -k bad_bounds",
    ),
    Mutant(
        "data/checks.py",
        "        if has_entry.sum() > observed.n_entries:",
        "        if False:",
        "answers/test_tables_in_and_out.py -k 'weights or repeated'",
    ),
    Mutant(
        "data/checks.py",
        "        given[lines[has_entry]] = of_lines[has_entry]",
        "        given[:] = of_lines[has_entry]",
        "answers/test_tables_in_and_out.py -k weights_of_a_long",
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
        "data/test_ids.py answers/test_tables_in_and_out.py -k times",
    ),
    Mutant(
        "data/tables.py",
        " and not sp.issparse(X)",
        "",
        "answers/test_queries.py -k keys",
        aimed=True,
    ),
]
