"""Execute notebooks without Jupyter: ``python docs/tools/notebooks.py`` rewrites their outputs.

The code cells of a notebook share one namespace and an empty working folder. Printed text, the
value of the last expression and open figures become the outputs of a cell, as in Jupyter.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt  # after the backend was selected

FOLDER = Path(__file__).parents[1] / "notebooks"

_STYLE = {"figure.figsize": (6.4, 3.2), "figure.dpi": 72, "savefig.dpi": 72}


def execute(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the notebook with the outputs of its code cells."""
    names: dict[str, Any] = {"__name__": "__main__"}
    done = json.loads(json.dumps(notebook))
    count = 0
    plt.close("all")  # figures that were open before are not outputs of the first cell
    with tempfile.TemporaryDirectory() as folder, chdir(folder), mpl.rc_context(_STYLE):
        for number, cell in enumerate(done["cells"], 1):
            if cell["cell_type"] == "code":
                count += 1
                cell["execution_count"] = count
                cell["outputs"] = _outputs(
                    "".join(cell["source"]), f"{name}, cell {number}", names, count
                )
    return done


def texts(notebook: dict[str, Any]) -> list[str]:
    """Return the text of all outputs, in which figures are named by their type only."""
    found = []
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream":
                found.append("".join(output["text"]))
            elif "text/plain" in output["data"] and "image/png" not in output["data"]:
                found.append("".join(output["data"]["text/plain"]))
            else:
                found.append("image/png")
    return found


def _outputs(code: str, name: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Execute a cell and return its outputs."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with redirect_stdout(printed):
        exec(compile(tree, name, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        found.append({"output_type": "stream", "name": "stdout", "text": text})
    if value is not None and not code.rstrip().endswith(";"):
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        result = {"output_type": "execute_result", "data": data, "metadata": {}}
        found.append(result | {"execution_count": count})
    for number in plt.get_fignums():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", metadata={"Software": None})
        data = {"image/png": base64.b64encode(image.getvalue()).decode() + "\n"}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
    plt.close("all")
    return found


def main() -> int:
    """Execute all notebooks and write their outputs."""
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        done = execute(notebook, path.name)
        path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
