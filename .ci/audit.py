"""Report known vulnerabilities of installed packages.

``PYTHON .ci/audit.py OTHER_PYTHON``, where PYTHON has pip-audit and OTHER_PYTHON the packages.
PyPI is queried, and OSV if it does not answer; with OSV_URL set, only the OSV service there. The
last line of the output is the summary. Exit codes: 0, every package was looked up and none has a
known vulnerability; 1, vulnerabilities, or packages that could not be looked up; 3, no service
answered.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


def installed(python: str) -> list[str]:
    """The packages of that environment as requirements, without those installed from a folder."""
    command = [
        python,
        "-m",
        "pip",
        "list",
        "--format=json",
        "--exclude-editable",
        "--disable-pip-version-check",
    ]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return [
        f"{package['name']}=={package['version']}"
        for package in listed
        if package["name"] != "robustmf"
    ]


def query(service: list[str], requirements: list[str]) -> list[dict] | str:
    """The service's report on each package, or why the query failed."""
    with tempfile.TemporaryDirectory(prefix="robustmf-audit-") as folder:
        listing = Path(folder, "installed.txt")
        report = Path(folder, "report.json")
        listing.write_text("\n".join(requirements))
        files = ["-r", str(listing), "-f", "json", "-o", str(report)]
        command = [
            sys.executable,
            "-m",
            "pip_audit",
            *service,
            *files,
            "--no-deps",
            "--disable-pip",
            "--progress-spinner",
            "off",
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if not report.exists():
            return (
                result.stderr.strip().splitlines() or [f"pip-audit exited with {result.returncode}"]
            )[-1]
        packages = json.loads(report.read_text())["dependencies"]
    # A mirror without PyPI's vulnerability service answers "not found" for every package, which
    # pip-audit takes for "no known vulnerability".
    looked_up = [package for package in packages if "vulns" in package]
    return (
        packages
        if looked_up
        else next((package["skip_reason"] for package in packages), "nothing is installed")
    )


def report_findings(service: str, packages: list[dict]) -> int:
    """Print the findings and return the exit code."""
    skipped = [package for package in packages if "vulns" not in package]
    found = [(package, one) for package in packages for one in package.get("vulns", ())]
    for package in skipped:
        print(f"not looked up: {package['name']}: {package['skip_reason']}")
    for package, one in found:
        fixed = ", ".join(one["fix_versions"]) or "no release"
        print(f"{package['name']} {package['version']}: {one['id']}, fixed in {fixed}")
    print(
        f"{len(packages)} packages, {len(skipped)} not looked up, "
        f"{len(found)} known vulnerabilities (by {service})"
    )
    return int(bool(found or skipped))


def main(python: str) -> int:
    """Query the services in turn until one answers."""
    requirements = installed(python)
    reasons = []
    url = os.environ.get("OSV_URL")
    services = {"PyPI": ["-s", "pypi"], "OSV": ["-s", "osv"]}
    if url:
        services = {url: ["-s", "osv", "--osv-url", url]}
    for name, service in services.items():
        answer = query(service, requirements)
        if not isinstance(answer, str):
            return report_findings(name, answer)
        reasons.append(f"{name}: {answer}")
    print(f"NOT AUDITED: no service answered. {'; '.join(reasons)}")
    return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
