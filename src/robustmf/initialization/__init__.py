"""Initialization of factors, scales, regularization and biases."""
