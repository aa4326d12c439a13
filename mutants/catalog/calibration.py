"""Scores, the noise model, intervals."""

from __future__ import annotations

from mutants.mutant import Mutant

_INTERVALS = "test_intervals.py"
_NOISE = "outliers/test_noise_model.py"
_SCORES = "outliers/test_outliers.py -k 'false_alarm_rate or unit or default or center or tails'"
_RATINGS = "data/test_rating_scale.py"
_OUTLIERS = (
    "outliers/test_outliers.py "
    "-k 'audit_lists or clean_rows or injected or constant_values or expected or few or occurr or moder'"
)
_SCALES = "outliers/test_scales.py -k 'leverages or clipped or bad_row or ordinary'"
_RELIABILITY = "initialization/test_reliability.py"
_EVIDENCE = "outliers/test_evidence.py"

MUTANTS = [
    Mutant(
        "intervals.py",
        "half_width = self._quantile(level) * deviations",
        "half_width = self._quantile(level) * deviations.mean()",
        _INTERVALS,
    ),
    Mutant(
        "intervals.py",
        "int(np.ceil((self.clean_share_ * len(self._scores) + 1) * level))",
        "int(np.floor(self.clean_share_ * len(self._scores) * level))",
        _INTERVALS,
    ),
    Mutant(
        "intervals.py",
        "(self.clean_share_ * len(self._scores) + 1)",
        "(len(self._scores) + 1)",
        _INTERVALS,
    ),
    Mutant(
        "intervals.py",
        'float(self._scores[k - 1]) if k <= len(self._scores) else float("inf")',
        "float(self._scores[min(k, len(self._scores)) - 1])",
        _INTERVALS,
    ),
    Mutant("intervals.py", "        if known:\n", "        if False:\n", _INTERVALS),
    Mutant("intervals.py", "np.zeros(len(i)))", "np.ones(len(i)))", _INTERVALS),
    Mutant(
        "intervals.py",
        "        if (i < 0).any() or (j < 0).any():",
        "        if False:",
        _INTERVALS,
    ),
    Mutant(
        "intervals.py",
        "        lower = model.clip(np.asarray(predicted - half_width))",
        "        lower = np.asarray(predicted - half_width)",
        _INTERVALS,
    ),
    Mutant("model.py", "& (fitted.rows.values[at] == values)", "", _NOISE, aimed=True),
    Mutant("model.py", "keys[at] == given", "True", _NOISE, aimed=True),
    Mutant("model.py", "weights * factors[positions]", "weights", _RELIABILITY),
    Mutant("outliers/noise.py", "(1 + w * of_row)", "(1 + of_row)", _NOISE),
    Mutant("outliers/noise.py", "(1 + w * of_column)", "(1 + of_column)", _NOISE),
    Mutant(
        "outliers/noise.py",
        "end = min(central * scale, max(limit, OPTIONS.least_central * scale))",
        "end = central * scale",
        _RELIABILITY,
    ),
    Mutant(
        "outliers/scores.py",
        "np.append(model.influence, 0.0)",
        "np.append(model.influence, 1.0)",
        _NOISE,
    ),
    Mutant("fitting.py", "of_all[~self.held_out]", "of_all[self.held_out]", _RELIABILITY),
    Mutant("fitting.py", "self.sample_weights * placed", "self.sample_weights", _RELIABILITY),
    Mutant(
        "outliers/noise.py",
        "np.where(fitted, of_fitted, np.sqrt(1 + of_row + of_column))",
        "np.sqrt(1 + of_row + of_column)",
        _NOISE,
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py",
        "np.sqrt((1 + of_column) / (1 + of_row)) * row_scales[i]",
        "np.sqrt((1 + of_column) * (1 + of_row)) * row_scales[i]",
        _NOISE,
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py",
        "n**2 / (n + len(self.moments) + 1) * self.moments",
        "n * self.moments",
        _NOISE,
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py",
        "self.reg * (n if self.reg_by_count else 1.0)",
        "self.reg",
        _NOISE,
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py",
        "        return np.asarray(2 * stdtr(self.freedom, -np.abs(self.in_scales(x))))",
        "        return np.asarray(stdtr(self.freedom, -np.abs(self.in_scales(x))))",
        _NOISE,
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py", "(1 + np.asarray(level)) / 2", "np.asarray(level)", _NOISE, aimed=True
    ),
    Mutant(
        "outliers/noise.py",
        "share=min(1.0, len(kept) / len(size) / inside)",
        "share=min(1.0, len(kept) / len(size))",
        _SCORES + " " + _NOISE,
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py",
        "self.row_counts[i] - own, self.column_counts[j] - own",
        "self.row_counts[i], self.column_counts[j]",
        _NOISE,
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py",
        "np.full((len(design), 1), constant)",
        "np.ones((len(design), 1))",
        _NOISE,
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py",
        "return np.asarray(np.minimum(leverage, OPTIONS.most_leverage))",
        "return np.asarray(leverage)",
        _NOISE,
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py",
        "finite = np.isfinite(x)",
        "finite = np.ones(len(x), bool)",
        _NOISE,
        aimed=True,
    ),
    Mutant(
        "outliers/noise.py",
        "        for _ in range(2):  # first",
        "        for _ in range(0):  # first",
        _NOISE + " " + _SCORES,
        aimed=True,
    ),
    Mutant(
        "outliers/scores.py",
        'i = entries.i + (model.shape[0] if rows == "new" else 0)',
        "i = entries.i",
        "outliers/test_outliers.py -k 'new'",
    ),
    Mutant(
        "outliers/scores.py",
        "        filled[self.known] = scores",
        "        filled[: len(scores)] = scores",
        "outliers/test_outliers.py -k 'new'",
    ),
    Mutant("intervals.py", 'require_positive("level", level)', "pass", _INTERVALS),
    Mutant("intervals.py", "np.sort(np.abs(scores)", "np.sort((scores)", _INTERVALS),
    # chosen without looking at the tests
    Mutant("data/rating_scale.py", "if bend < 0:", "if False:", _RATINGS),
    Mutant(
        "data/rating_scale.py",
        "step - OPTIONS.standard_errors * np.sqrt(error)",
        "step",
        _RATINGS,
    ),
    Mutant("data/rating_scale.py", "on_levels[:-4:-1]", "on_levels[-3:]", _RATINGS),
    Mutant(
        "data/rating_scale.py",
        "key=lambda one: int(counts[is_level][one].sum())",
        "key=len",
        _RATINGS,
    ),
    Mutant(
        "data/rating_scale.py",
        "pdtr(beyond, last * np.exp(least_step)) < OPTIONS.significance",
        "beyond < last * np.exp(least_step)",
        _RATINGS,
    ),
    Mutant("data/rating_scale.py", "< OPTIONS.coverage * total", "< 0", _RATINGS),
    Mutant(
        "outliers/scores.py",
        "model.clip(np.asarray(predicted))",
        "np.asarray(predicted)",
        _OUTLIERS,
    ),
    Mutant(
        "outliers/scores.py",
        "noise.distribution.quantile(_ONE_SIGMA) * entries.deviations",
        "entries.deviations",
        _OUTLIERS,
    ),
    Mutant("outliers/evidence.py", "len(kinds) * np.log1p(", "np.log1p(", _OUTLIERS),
    Mutant("outliers/evidence.py", " - own[:, None] * signs", "", _OUTLIERS),
    Mutant(
        "outliers/evidence.py",
        "np.clip(np.exp(design @ line), mean, 1.0)",
        "np.clip(np.exp(design @ line), 0.0, 1.0)",
        _OUTLIERS,
    ),
    Mutant(
        "outliers/evidence.py",
        "np.where(tail < 1 / n_usable, np.sqrt(tail / n_usable), tail)",
        "tail",
        _OUTLIERS,
    ),
    Mutant(
        "outliers/noise.py",
        "np.minimum(scales, np.exp(middle + OPTIONS.scale_limit * deviation))",
        "scales",
        _SCALES,
    ),
    Mutant("outliers/noise.py", "            U = U / scales[0][:, None]\n", "", _SCALES),
    Mutant("outliers/noise.py", " / row_scales[:, None]", "", _SCALES),
    Mutant(
        "outliers/noise.py",
        "return deviations if self.scales is None else np.asarray(deviations * self.scales[1][j])",
        "return deviations",
        _SCALES,
    ),
    Mutant(
        "outliers/evidence.py",
        "    if is_discrete_scale(groups.values):",
        "    if True:",
        _EVIDENCE,
    ),
    Mutant(
        "outliers/evidence.py",
        "np.clip(groups.z, -OPTIONS.winsor, OPTIONS.winsor)",
        "groups.z",
        _EVIDENCE,
    ),
    Mutant(
        "outliers/evidence.py",
        "np.where(hits > 0, tail, 1.0)",
        "tail",
        _EVIDENCE,
    ),
    Mutant(
        "outliers/evidence.py",
        "np.where(residual > 0, level, 1 - level)",
        "np.where(residual > 0, 1 - level, level)",
        _EVIDENCE,
    ),
    Mutant(
        "outliers/evidence.py",
        "deviation**2 - float(np.median(polygamma(1, n[usable] / 2)))",
        "deviation**2",
        _EVIDENCE,
    ),
    Mutant(
        "outliers/noise.py",
        "np.cumsum(reliability[order] - 0.5)",
        "np.cumsum(reliability[order])",
        _RELIABILITY,
    ),
    Mutant(
        "outliers/noise.py",
        "np.log(scales[counts > 0])",
        "np.log(scales)",
        _SCALES,
    ),
    Mutant(
        "outliers/noise.py",
        "freedom - len(self.of_rows.moments) ** 2",
        "freedom",
        _NOISE,
    ),
    Mutant(
        "outliers/noise.py",
        "folded_in[i] - 1",
        "folded_in[i]",
        _NOISE,
    ),
    Mutant(
        "outliers/scores.py",
        '    first = model.shape[0] if rows == "new" else 0',
        "    first = 0",
        "outliers/test_outliers.py -k audit_of_new_rows",
    ),
]
