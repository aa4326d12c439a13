"""Clusters of the command line: where they listen, and notes on their security."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from robustmf.cli.cluster import is_exposed

pytest.importorskip("distributed")
pytest.importorskip("psutil")


def test_a_local_cluster_listens_on_this_machine_only():
    code = """
        import json
        import psutil
        from robustmf.cli.cluster import connected

        if __name__ == "__main__":
            with connected(None, 1):
                this = psutil.Process()
                processes = [this, *this.children(recursive=True)]
                print(json.dumps([
                    socket.laddr.ip
                    for process in processes
                    for socket in process.net_connections()
                    if socket.status == psutil.CONN_LISTEN
                ]))
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    addresses = json.loads(result.stdout)
    assert len(addresses) >= 2
    assert set(addresses) == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("tcp://10.0.0.1:8786", True),
        ("tcp://[fe80::1]:8786", True),
        ("ws://cluster.example:80", True),
        ("tcp://127.cluster.example:8786", True),
        ("tcp://localhost.cluster.example:8786", True),
        ("10.0.0.1:8786", True),
        ("tls://10.0.0.1:8786", False),
        ("tcp://127.0.0.1:8786", False),
        ("tcp://127.0.1.1:8786", False),
        ("tcp://localhost:8786", False),
        ("tcp://[::1]:8786", False),
        ("inproc://10.0.0.1/1/2", False),
    ],
)
def test_connections_without_encryption_are_noted(address, expected):
    assert is_exposed(address) is expected
