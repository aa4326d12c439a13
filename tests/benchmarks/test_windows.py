"""The benchmarks on platforms without the module ``resource``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_command_line_imports_without_the_module_resource():
    code = "import sys; sys.modules['resource'] = None; import benchmarks.__main__, benchmarks.mm"
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100, env=environment)
