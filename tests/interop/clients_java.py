"""The Java clients and the command line tools of one version of Kafka: one JVM, many operations."""

import json
import select
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

from tests.interop import toolchain

TIMEOUT_S: Final = 240
VERSIONS: Final = ("3.9", "4.3", "4.4")
"""Of clients and tools."""


class ToolResult(NamedTuple):
    """Exit status of a tool, and all of its output."""

    status: int
    output: str


class JavaClients:
    """The JVM; `operation` and `tool` are done one after the other."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            toolchain.clients_command(version), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(TIMEOUT_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()
            self._errors.close()

    def operation(self, name: str, bootstrap: str, topic: str) -> None:
        """Does it on a separate topic; AssertionError with what went wrong."""
        answer = self._ask({"operation": name, "bootstrap": bootstrap, "topic": topic})
        assert "error" not in answer, answer["error"]

    def tool(self, name: str, arguments: Sequence[str], given: str = "") -> ToolResult:
        """Runs the tool's main with these arguments, `given` on its standard input."""
        answer = self._ask({"tool": name, "arguments": list(arguments), "input": given})
        assert "error" not in answer, answer["error"]
        return ToolResult(answer["status"], answer["output"])

    def _ask(self, command: dict[str, Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_S)
            more = self._process.stdout.read1(1 << 16) if ready else b""  # type: ignore[attr-defined]
            assert more, f"{command}: no answer; it said {self._said()}"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2000:]
