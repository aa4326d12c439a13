"""The estimators: parameters, fits from parameters and data, and files of fitted estimators."""

from robustmf.estimator.robust_mf import RMFNL, RobustMF, load

__all__ = ["RMFNL", "RobustMF", "load"]
