"""docs/replication.md, run as it says: three servers, a promotion, a loss, and the first one comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
from tests.documents import ROOT, run_document


@pytest.mark.slow
def test_the_document_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
        run_document(ROOT / "docs" / "replication.md", tmp_path, {"__name__": "__example__"}, run)
    finally:
        for kept in tmp_path.glob("pid-*"):
            with suppress(ProcessLookupError):  # those that the document has not ended
                os.kill(int(kept.read_text(encoding="ascii")), signal.SIGKILL)
