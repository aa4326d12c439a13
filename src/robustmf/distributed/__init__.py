"""Fits and predictions on a Dask cluster.

The storage of entries and factors and the sweeps over them are in :mod:`robustmf.backends.dask`,
which also exports the public names.
"""
