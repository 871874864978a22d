"""A client in a separate process: what it keeps comes as lines, so one that crashes takes nothing with it."""

from __future__ import annotations

import faulthandler
import importlib
import json
import logging
import os
import resource
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.commands import environment
from tests.server.replicated.checker import OK, Append, Operation, from_line, to_line
from tests.server.replicated.clients import Client
from tests.server.replicated.slow_node import end_with

PIECE = 1 << 16
CRASHED = "crashed by "
"""Prefix of the outcome of a process that a signal ended."""


class Apart(Client):
    """A client of this kind, restarted when its process ends for any reason. The outcome of a crashed client's
    unanswered records stays unknown. Output of the libraries goes to a file in the directory."""

    def __init__(
        self, kind: type[Client], name: str, bootstrap: str, topics: Mapping[str, int], history: list[Operation],
        directory: Path, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, bootstrap, topics, history)
        self.is_writer = kind.is_writer
        self.reports_outcome = options.get("acks") != 0
        self._said = directory.absolute() / f"client-{name}.log"
        self._order = {"kind": [kind.__module__, kind.__name__], "name": name, "bootstrap": bootstrap,
                       "topics": dict(topics), "options": options}  # fmt: skip

    def work(self, process: str) -> None:
        order = json.dumps({**self._order, "process": process, "parent": os.getpid()})
        with self._said.open("ab") as said:  # in the directory, for a core that the system may write
            child = subprocess.Popen(
                [sys.executable, "-m", "tests.server.replicated.apart", order], cwd=self._said.parent,
                env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said,
            )  # fmt: skip
        assert child.stdin is not None and child.stdout is not None
        rest = b""
        with child:
            while True:
                if self.is_over.is_set() and not child.stdin.closed:
                    child.stdin.close()
                if not select.select([child.stdout], [], [], 0.1)[0]:
                    continue
                piece = os.read(child.stdout.fileno(), PIECE)
                if not piece:
                    break
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    self._heard(line.decode())
        if child.returncode < 0:
            self.outcomes[CRASHED + signal.Signals(-child.returncode).name] += 1
        elif child.returncode:
            raise RuntimeError(f"status {child.returncode}, see {self._said}")

    def _heard(self, line: str) -> None:
        if line.startswith("{"):
            self.outcomes.update(json.loads(line))
            return
        operation = from_line(line)
        self.history.append(operation)
        if isinstance(operation, Append) and operation.outcome == OK:
            self.acknowledged[operation.key[0]] += 1


class Lines(list[Operation]):
    """A history that is written as it grows: what is in it is with the parent, whatever happens next."""

    def append(self, operation: Operation) -> None:
        data = to_line(operation).encode() + b"\n"
        while data:
            data = data[os.write(1, data) :]


def main(order: dict[str, Any]) -> None:
    """Run one round of a client, until stdin ends or it has to restart."""
    threading.Thread(target=end_with, args=(order["parent"],), daemon=True).start()
    logging.disable(logging.CRITICAL)  # what clients say of each failure
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
    module, name = order["kind"]
    kind = getattr(importlib.import_module(module), name)
    client = kind(order["name"], order["bootstrap"], order["topics"], Lines(), **order["options"])

    def listen() -> None:
        sys.stdin.read()
        client.is_over.set()

    threading.Thread(target=listen, daemon=True).start()
    client.work(order["process"])
    os.write(1, json.dumps(client.outcomes).encode() + b"\n")


if __name__ == "__main__":
    faulthandler.enable()
    main(json.loads(sys.argv[1]))
