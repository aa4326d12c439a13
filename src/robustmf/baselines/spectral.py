"""The truncated SVD of the zero-filled matrix: an initial point and the scale of λ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from robustmf.data.observed import Observed
from robustmf.solvers.objective import paper_reg
from robustmf.validation import require_positive

Array = NDArray[np.floating[Any]]
Reg = float | Literal["auto", "paper"]


@dataclass(frozen=True)
class SpectralOptions:
    """Constants of the choice of λ.

    Attributes
    ----------
    auto_fraction : float
        ``reg="auto"`` is this fraction of σ_{r+1}, chosen on the validation half of the synthetic
        problem (docs/design/baselines.md).
    """

    auto_fraction: float = 0.1


OPTIONS = SpectralOptions()


def truncated_svd(
    observed: Observed, rank: int, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Return the leading singular triplets (U, s, V), s descending; missing entries count as 0."""
    short = min(observed.shape)
    largest = float(np.abs(observed.rows.values).max())
    if largest == 0:
        U = np.eye(observed.shape[0], rank)
        s = np.zeros(rank)
        Vt = np.eye(rank, observed.shape[1])
        return _contiguous(U, s, Vt.T, observed.dtype)
    # Scaled by a power of two, which is exact, squares neither overflow nor underflow.
    unit = 2.0 ** np.floor(np.log2(largest))
    X = observed.to_sparse().astype(np.float64) / unit
    if 3 * rank >= short:
        # The Lanczos method needs many more dimensions than singular vectors.
        U, s, Vt = np.linalg.svd(X.toarray(), full_matrices=False)
    else:
        U, s, Vt = svds(X, k=rank, v0=rng.standard_normal(short))
        order = np.argsort(-s)
        U = U[:, order]
        s = s[order]
        Vt = Vt[order]
    return _contiguous(U[:, :rank], unit * s[:rank], Vt.T[:, :rank], observed.dtype)


def _contiguous(U: Array, s: Array, V: Array, dtype: Any) -> tuple[Array, Array, Array]:
    """Return the arrays in row-major order and the given precision."""
    U, s, V = (np.ascontiguousarray(A, dtype) for A in (U, s, V))
    return U, s, V


def noise_scale(observed: Observed, rank: int, rng: np.random.Generator) -> float:
    """Return σ_{r+1} of the zero-filled matrix, or σ_r if that is the last one."""
    s = truncated_svd(observed, min(rank + 1, *observed.shape), rng)[1]
    return float(s[-1])


def chosen_reg(reg: Reg, observed: Observed, rank: int, rng: np.random.Generator) -> float:
    """Return λ: "auto" is a fraction of the noise scale, "paper" is 20/(m+n)."""
    if reg == "auto":
        return OPTIONS.auto_fraction * noise_scale(observed, rank, rng)
    return paper_reg(observed.shape) if isinstance(reg, str) else float(reg)


def require_reg(reg: Any) -> None:
    """Raise an error unless λ ≥ 0, "auto" or "paper"."""
    if reg not in ("auto", "paper", 0):
        require_positive("reg", reg, also="0, 'auto' or 'paper'")
