"""Known weaknesses of what is installed: PYTHON .ci/audit.py OTHER_PYTHON, where PYTHON has pip-audit and OTHER_PYTHON the packages.

Asks PyPI, and where it does not answer OSV; or the OSV service at OSV_URL alone. The last line says what came of it. Exit codes: 0, every
package was looked up and none is known to be weak; 1, weaknesses, or packages that could not be looked up; 3, no service answered.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def installed(python: str) -> list[str]:
    """What is installed there, as requirements, without robustmf and what else comes from a folder: no service knows that."""
    command = [python, "-m", "pip", "list", "--format=json", "--exclude-editable", "--disable-pip-version-check"]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [f"{package['name']}=={package['version']}" for package in listed if package["name"] != "robustmf"]


def asked(service: list[str], requirements: list[str]) -> list[dict] | str:
    """What a service knows of each package; or why it could not be asked."""
    with tempfile.TemporaryDirectory(prefix="robustmf-audit-") as folder:
        wanted, told = Path(folder, "installed.txt"), Path(folder, "told.json")
        wanted.write_text("\n".join(requirements))
        files = ["-r", str(wanted), "-f", "json", "-o", str(told)]
        command = [sys.executable, "-m", "pip_audit", *service, *files, "--no-deps", "--disable-pip", "--progress-spinner", "off"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if not told.exists():
            return (ended.stderr.strip().splitlines() or [f"pip-audit ended with {ended.returncode}"])[-1]
        packages = json.loads(told.read_text())["dependencies"]
    # a mirror without PyPI's own service answers "not found" for all of them, which pip-audit takes for "nothing is known"
    looked_up = [package for package in packages if "vulns" in package]
    return packages if looked_up else next((package["skip_reason"] for package in packages), "nothing is installed")


def judged(service: str, packages: list[dict]) -> int:
    """Print what was found; the exit code."""
    skipped = [package for package in packages if "vulns" not in package]
    weak = [(package, weakness) for package in packages for weakness in package.get("vulns", ())]
    for package in skipped:
        print(f"not looked up: {package['name']}: {package['skip_reason']}")
    for package, weakness in weak:
        print(f"{package['name']} {package['version']}: {weakness['id']}, mended in {', '.join(weakness['fix_versions']) or 'no release'}")
    print(f"{len(packages)} packages, {len(skipped)} not looked up, {len(weak)} known weaknesses (by {service})")
    return int(bool(weak or skipped))


def main(python: str) -> int:
    """Ask one service after the other."""
    requirements, reasons, own = installed(python), [], os.environ.get("OSV_URL")
    usual = {"PyPI": ["-s", "pypi"], "OSV": ["-s", "osv"]}
    for name, service in ({own: ["-s", "osv", "--osv-url", own]} if own else usual).items():
        answer = asked(service, requirements)
        if not isinstance(answer, str):
            return judged(name, answer)
        reasons.append(f"{name}: {answer}")
    print(f"NOT AUDITED: no service answered. {'; '.join(reasons)}")
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
