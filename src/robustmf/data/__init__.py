"""Observed entries, their ids, tables, factorizations, holdouts."""
