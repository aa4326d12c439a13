"""``python -m robustmf`` is the command ``robustmf``."""

from robustmf.cli import app

app()
