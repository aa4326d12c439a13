"""What is known about the paper's numbers; printed beside them in the report."""

from __future__ import annotations

_BELOW = (
    "The printed values at m = 500 and 1000 lie below least squares that knows which entries are "
    "outliers."
)

_DINOSAUR = "Converges to other local minima from Gaussian initializations in pixels."

TABLE1 = f"{_BELOW} The printed 0.45 at m = 1000 is a misprint of 0.045 (Table 2 has 0.047)."

TABLE2 = {
    "AltGrad": (
        "λ = 20/(m+n) hardly regularizes, and at m = 250 single seeds reach a worse local minimum; "
        "see the row with λ chosen."
    ),
    "OMDL": (
        "The public algorithm is biased when entries are missing: it averages codes over all rows, "
        "but their products with the data only over rows that observe a column. No parameter tried "
        "reaches the printed numbers."
    ),
    "ALT-Impute": (
        "λ is chosen on validation entries here; the printed numbers are those of hardly any "
        "regularization."
    ),
    "GRASTA": (
        "Unstable: single seeds diverge, and the others are better than printed. Twenty passes."
    ),
    "RMC": "The authors' settings, initialized by the SVD, give lower errors than printed.",
    "RMF-MM": (
        "The l1 optimum is lower than printed; with the paper's loose inner rule the iteration "
        "stops early."
    ),
    "RMFNL LSP": _BELOW,
    "RMFNL Geman": _BELOW,
    "RMFNL Laplace": _BELOW,
}

TABLE3 = (
    "The paper states neither rank nor preprocessing, nor whether test ratings are attacked. Here: "
    "rank 5, z-scores, attacked test ratings."
)

TABLE4 = {
    "RMF-MM": _DINOSAUR,
    "RMF-MM (heuristic)": _DINOSAUR,
    "RMFNL LSP": (
        "With λ = 20/(m+n), as the paper states, the ridge is not small relative to a loss in "
        "pixels, and MM converges slowly."
    ),
}

LEADS = {
    "figure1": (
        "Each loss lies below its tangent in |α| and touches it at |β|. MCP is drawn with θ/2 "
        "beyond θ, not the printed θ²/2, with which it would be discontinuous."
    ),
    "figure2": (
        "LSP loss, first outer iteration from the Gaussian initialization, one thread. The two "
        "APGs take the same steps; only the cost of a step differs."
    ),
    "table1": (
        "The paper's algorithm initialized by least squares, with its inner rule (300 iterations, "
        "or a change below 1e-6; LADMPSAP has the rule of its authors, because with its small "
        "first penalty the objective changes too slowly at first)."
    ),
    "table2": (
        "RMSE against the clean matrix on unobserved entries; noise of standard deviation 0.1, the "
        "interpretation of the paper that fits its l2 rows. Parameters are chosen by mean absolute "
        "error on the validation half: λ of ALT-Impute, cmfrec, LIBMF and 'AltGrad (λ chosen)', α "
        "of OMDL; AltGrad and RMFNL have the paper's 20/(m+n). RMFNL is initialized by least "
        "squares: from the Gaussian initialization that the paper states it fails (separate row). "
        "The last rows are methods that the paper does not have."
    ),
    "table3": (
        "Test RMSE on attacked test ratings in z-scores, the interpretation closest to the printed "
        "numbers; below it all three test errors in both units. λ (α of OMDL) is chosen on "
        "validation entries. With λ chosen, the nonsmooth losses do not improve on least squares "
        "in RMSE (RMFNL against AltGrad and ALT-Impute) by any of the test errors: the paper's "
        "order is not reproduced. Biases matter more."
    ),
    "table4": (
        "Mean absolute error in pixels over the observed entries: a training error, as in the "
        "paper, which has no held-out set."
    ),
    "statistics": "",
    "larger": (
        "Neither set may be redistributed; the runs are executed where their files are found "
        "(`robustmf data`)."
    ),
}
