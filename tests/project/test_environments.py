"""``make oldest`` and ``make audit-dependencies``, run for real: what they install comes from the package registry."""

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


@pytest.fixture
def registry(tmp_path):
    """Skips where pip reaches no registry, with what pip says."""
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
    asked = subprocess.run(
        [*command, "--dest", str(tmp_path)], capture_output=True, text=True, check=False
    )
    if asked.returncode:
        pytest.skip(f"no package registry: {asked.stderr.strip().splitlines()[-1]}")


def make(*arguments, **environment):
    command = ["make", "--no-print-directory", f"PYTHON={sys.executable}", *arguments]
    # of the environment that runs these tests, and of the make that may run them, nothing may reach the one that is made
    dropped = ("PYTHONPATH", "NUMBA_CACHE_DIR", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    # most of what is installed is not imported here
    kept["PIP_NO_COMPILE"] = "1"
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
def test_oldest_makes_its_environment_and_runs_the_tests_that_are_asked_for(tmp_path):
    told = make("oldest", "TESTS=-n0 -q tests/test_losses.py", OLDEST_VENV=str(tmp_path / "oldest"))
    assert told.returncode == 0, told.stdout[-2000:] + told.stderr[-2000:]
    listed = dict(re.findall(r"^(\S+) +(\d\S*)", told.stdout, re.MULTILINE))
    pinned = dict(
        re.findall(
            r"^([\w-]+)==(\S+)$", (tmp_path / "oldest" / "oldest.txt").read_text(), re.MULTILINE
        )
    )
    for name in ("numpy", "scipy", "numba", "scikit-learn", "pyarrow"):
        assert Version(listed[name]) == Version(pinned[name]), name
    assert re.search(r"\d+ passed", told.stdout)
    shutil.rmtree(tmp_path / "oldest")  # a gigabyte, which pytest would keep


@pytest.mark.usefixtures("registry")
def test_audit_tells_weaknesses_and_what_could_not_be_asked(tmp_path):
    """Of the packages that these tests run with; nothing is installed among them. One test, for one environment with pip-audit."""

    def audit(*arguments):
        given = (f"VENV={sys.prefix}", f"AUDIT_VENV={tmp_path / 'audit'}")
        told = make("--old-file", f"{sys.prefix}/.dev", *given, *arguments, "audit-dependencies")
        assert told.stdout, told.stderr
        return told.returncode, told.stdout, told.stdout.splitlines()[-1]

    with weaknesses_served({"numpy": "MADE-UP-1"}) as url:
        code, told, last = audit(f"OSV_URL={url}")
    assert code != 0
    assert re.search(r"^numpy \S+: MADE-UP-1, mended in 99$", told, re.MULTILINE), told
    assert re.fullmatch(
        r"\d\d+ packages, 0 not looked up, 1 known weaknesses \(by http://\S+\)", last
    )
    with weaknesses_served({}) as url:
        code, told, last = audit(f"OSV_URL={url}")
    assert code == 0, told
    assert re.fullmatch(
        r"\d\d+ packages, 0 not looked up, 0 known weaknesses \(by http://\S+\)", last
    )
    code, _, last = audit(f"OSV_URL={url}")  # which has ended
    assert code != 0
    assert last.startswith(f"NOT AUDITED: no service answered. {url}: ")
    assert "Connection refused" in last
    code, told, last = audit()
    if last.startswith("NOT AUDITED: no service answered. PyPI: "):
        assert code != 0
        pytest.skip(f"what a service of one's own says is told rightly; the real ones: {last}")
    # what the world knows today is not for a test of the command to judge
    counts = re.fullmatch(
        r"\d\d+ packages, (\d+) not looked up, (\d+) known weaknesses \(by \w+\)", last
    )
    assert counts, told
    assert (code == 0) == (counts.groups() == ("0", "0"))


@contextmanager
def weaknesses_served(weak):
    """An OSV service of one's own, which knows of these weaknesses by package."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            name = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["package"][
                "name"
            ]
            ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99"}]}]
            affected = [{"package": {"name": name, "ecosystem": "PyPI"}, "ranges": ranges}]
            known = {
                "id": weak.get(name),
                "published": "2026-01-01T00:00:00Z",
                "summary": "made up",
                "details": "",
                "affected": affected,
            }
            answer = json.dumps({"vulns": [known]} if name in weak else {}).encode()
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
