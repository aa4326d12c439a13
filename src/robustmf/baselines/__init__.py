"""The systems that the paper compares with, behind one small interface: ``fit``, ``predict``, ``history_``."""

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
