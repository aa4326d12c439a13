"""``make oldest`` and ``make audit-dependencies``, with packages from the package registry."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.version import Version

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def registry(tmp_path):
    """Skips where pip reaches no registry, with the message of pip."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--retries",
        "0",
        "--timeout",
        "20",
        "iniconfig",
    ]
    result = subprocess.run(
        [*command, "--dest", str(tmp_path)], capture_output=True, text=True, check=False
    )
    if result.returncode:
        pytest.skip(f"no package registry: {result.stderr.strip().splitlines()[-1]}")


def make(*arguments, **environment):
    command = ["make", "--no-print-directory", f"PYTHON={sys.executable}", *arguments]
    # The environment under test must not inherit these from the one that runs the tests.
    dropped = ("PYTHONPATH", "NUMBA_CACHE_DIR", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return subprocess.run(
        command,
        cwd=ROOT,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


@pytest.mark.skipif(
    sys.version_info >= (3, 13),
    reason="the oldest NumPy, SciPy and Numba have no wheels for Python 3.13",
)
@pytest.mark.usefixtures("registry")
def test_oldest_creates_its_environment_and_runs_the_given_tests(tmp_path):
    result = make("oldest", "TESTS=-n0 -q tests/losses", OLDEST_VENV=str(tmp_path / "oldest"))
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    listed = dict(re.findall(r"^(\S+) +(\d\S*)", result.stdout, re.MULTILINE))
    pinned = dict(
        re.findall(
            r"^([\w-]+)==(\S+)$", (tmp_path / "oldest" / "oldest.txt").read_text(), re.MULTILINE
        )
    )
    for name in ("numpy", "scipy", "numba", "scikit-learn", "pyarrow"):
        assert Version(listed[name]) == Version(pinned[name]), name
    assert re.search(r"\d+ passed", result.stdout)
    shutil.rmtree(tmp_path / "oldest")  # a gigabyte, which pytest would keep


@pytest.mark.usefixtures("registry")
def test_audit_reports_vulnerabilities_and_failed_queries(tmp_path):
    """Audits the packages of this environment; one test, so that pip-audit is installed once."""

    def audit(*arguments):
        variables = (f"VENV={sys.prefix}", f"AUDIT_VENV={tmp_path / 'audit'}")
        result = make(
            "--old-file", f"{sys.prefix}/.dev", *variables, *arguments, "audit-dependencies"
        )
        assert result.stdout, result.stderr
        return result.returncode, result.stdout, result.stdout.splitlines()[-1]

    with vulnerabilities_served({"numpy": "MADE-UP-1"}) as url:
        code, output, last = audit(f"OSV_URL={url}")
    assert code != 0
    assert re.search(r"^numpy \S+: MADE-UP-1, fixed in 99$", output, re.MULTILINE), output
    assert re.fullmatch(
        r"\d\d+ packages, 0 not looked up, 1 known vulnerabilities \(by http://\S+\)", last
    )
    with vulnerabilities_served({}) as url:
        code, output, last = audit(f"OSV_URL={url}")
    assert code == 0, output
    assert re.fullmatch(
        r"\d\d+ packages, 0 not looked up, 0 known vulnerabilities \(by http://\S+\)", last
    )
    code, _, last = audit(f"OSV_URL={url}")  # the server has stopped
    assert code != 0
    assert last.startswith(f"NOT AUDITED: no service answered. {url}: ")
    assert "Connection refused" in last
    code, output, last = audit()
    if last.startswith("NOT AUDITED: no service answered. PyPI: "):
        assert code != 0
        pytest.skip(f"no public service answers: {last}")
    # Vulnerabilities known today are not a failure of the command.
    counts = re.fullmatch(
        r"\d\d+ packages, (\d+) not looked up, (\d+) known vulnerabilities \(by \w+\)", last
    )
    assert counts, output
    assert (code == 0) == (counts.groups() == ("0", "0"))


@contextmanager
def vulnerabilities_served(known):
    """A local OSV service that reports these vulnerabilities, by package."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            name = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["package"][
                "name"
            ]
            ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}]
            affected = [{"package": {"name": name, "ecosystem": "PyPI"}, "ranges": ranges}]
            vulnerability = {
                "id": known.get(name),
                "published": "2026-01-01T00:00:00Z",
                "summary": "made up",
                "details": "",
                "affected": affected,
            }
            answer = json.dumps({"vulns": [vulnerability]} if name in known else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1/query"
        server.shutdown()
