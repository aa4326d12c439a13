"""Files: models, checkpoints, and tables of entries."""
