"""Noise model, outlier scores and audit."""
