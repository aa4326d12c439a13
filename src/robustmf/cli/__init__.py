"""The command line: one file a verb."""

from __future__ import annotations

import typer

from robustmf.cli import bench, data, demo, report, reproduce

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Robust matrix factorization.", pretty_exceptions_enable=False)
app.command()(demo.demo)
app.command()(reproduce.reproduce)
app.command()(report.report)
app.add_typer(bench.app, name="bench")
app.add_typer(data.app, name="data")
