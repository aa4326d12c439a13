"""Print the oldest allowed release of every dependency, and of what the tests need, as pins."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
#: What tests import; linters, browsers and other development tools are always the newest.
tested = [one for one in extras["dev"] if re.match(r"xlwt|pytest|hypothesis|pandas|polars", one)]
for bound in (*project["dependencies"], *extras["plot"], *extras["data"], *extras["dask"], *tested):
    name, _, version = bound.partition(">=")
    print(f"{name}=={version}")
# Newer releases of these warn about calls that the oldest Matplotlib and the oldest typer make.
print("pyparsing<3.3")
print("click==8.2.1")
