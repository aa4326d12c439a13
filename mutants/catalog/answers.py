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
]
