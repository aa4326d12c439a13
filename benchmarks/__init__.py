"""Experiments: each runs and returns plain records; nothing here draws or prints."""
