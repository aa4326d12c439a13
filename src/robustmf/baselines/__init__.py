"""The comparison systems of the paper, with a common interface: ``fit``, ``predict``, ``history_``.

Every estimator derives from :class:`Baseline`, which holds the parameters and runs the common
loop. The algorithm itself is a separate class with the methods ``begin`` and ``step``
(:class:`robustmf.solvers.base.Solver`), which the estimator creates.
"""

from robustmf.baselines.alt_grad import AltGrad
from robustmf.baselines.alt_impute import AltImpute
from robustmf.baselines.grasta import GRASTA
from robustmf.baselines.interface import Baseline
from robustmf.baselines.omdl import OMDL
from robustmf.baselines.riemannian import RP
from robustmf.baselines.rmc import RMC
from robustmf.baselines.rmf_mm import RMFMM
from robustmf.baselines.scaled_asd import ScaledASD

__all__ = ["GRASTA", "OMDL", "RMC", "RMFMM", "RP", "AltGrad", "AltImpute", "Baseline", "ScaledASD"]
