"""``python -m robustmf.cli``."""

from robustmf.cli import app

app()
