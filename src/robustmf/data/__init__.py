"""Observed entries of a matrix, their identifiers, and tables they are read from."""
