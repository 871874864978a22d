"""docs/replication.md, run as it says: three servers, a promotion, a loss, and the first one comes back."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
from tests.documents import ROOT, run_document

PORTS = "1909"
"""What the ports of the document begin with; one digit follows."""


def free_ports() -> str:
    """Return the same text with free ports, which no client gets by chance."""
    for begin in random.sample(range(1100, 3200), 50):
        with ExitStack() as taken:
            try:
                for last in (1, 2, 3):
                    taken.enter_context(socket.create_server(("127.0.0.1", begin * 10 + last)))
            except OSError:
                continue
        return str(begin)
    raise OSError("no free ports")


@pytest.mark.slow
def test_the_document_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = ROOT / "docs" / "replication.md"
    assert PORTS in document.read_text(encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}

    def run(command: str, directory: Path) -> str:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    try:
        run_document(document, tmp_path, {"__name__": "__example__"}, run, (PORTS, free_ports()))
    finally:
        for kept in tmp_path.glob("pid-*"):
            with suppress(ProcessLookupError):  # those that the document has not ended
                os.kill(int(kept.read_text(encoding="ascii")), signal.SIGKILL)
