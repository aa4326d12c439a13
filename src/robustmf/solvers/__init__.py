"""Solvers for the objective, the points they start from, and the loop around them."""
