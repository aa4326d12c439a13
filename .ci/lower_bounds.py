"""Print the oldest release of every package that pyproject.toml allows, as requirements: of the dependencies and of what tests bring."""

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
#: of the extra dev: what tests import; linters, browsers and other tools of the house are always the newest
tested = [one for one in extras["dev"] if re.match(r"xlwt|pytest|hypothesis|pandas|polars", one)]
for bound in (*project["dependencies"], *extras["plot"], *extras["data"], *extras["dask"], *tested):
    name, _, version = bound.partition(">=")
    print(f"{name}=={version}")
print("pyparsing<3.3")  # Matplotlib's own: newer ones warn of what its oldest asks for
print("click==8.2.1")  # typer's own: what the oldest typer was made for, and newer ones warn of
