"""Answers of a fitted model, with ids and in the form of the tables they are about."""
