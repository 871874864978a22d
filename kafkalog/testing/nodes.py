"""The nodes of a cluster for tests, and those that are cut off."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from kafkalog.testing.control import Control
from kafkalog.testing.faults import Fault


class Node:
    """One node of a cluster: its directory, its log file, its process while it runs."""

    def __init__(self, node_id: int, port: int, directory: Path) -> None:
        self.node_id = node_id
        self.port = port
        self.directory = directory
        self.log_file = tempfile.TemporaryFile()
        self._log_at_end = ""
        self.pid = 0
        self.control: Control | None = None
        self.is_paused = False
        self.missed: list[tuple[str, dict[str, Any]]] = []  # commands while it is paused

    @property
    def is_running(self) -> bool:
        """True between start and stop or kill."""
        return self.control is not None

    def log(self) -> str:
        """Return the node's log so far: warnings and errors."""
        if self.log_file.closed:
            return self._log_at_end
        descriptor = self.log_file.fileno()  # pread: the node shares the file position
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8", "replace")

    def close_log(self) -> None:
        """Close the log file; the text stays available."""
        self._log_at_end = self.log()
        self.log_file.close()

    def forget(self) -> None:
        """Note that its process has ended."""
        if self.control is not None:
            self.control.close()
        self.control, self.pid, self.is_paused, self.missed = None, 0, False, []


class CutOff:
    """A node that some connections do not reach, until `heal()` or the end of its `with` block."""

    def __init__(self, faults: Iterable[Fault], on_heal: Callable[[], object]) -> None:
        self._faults = list(faults)
        self._on_heal = on_heal

    def heal(self) -> None:
        """Let all connections through again."""
        with ExitStack() as healing:  # all of them, even if a node does not answer
            healing.callback(self._on_heal)
            for fault in self._faults:
                healing.callback(fault.remove)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()


def know(states: Mapping[int, Mapping[str, Any]], leader: int, silent: Collection[int]) -> bool:
    """Return True if all nodes except the `silent` ones know the leader; `states` has their own answers."""
    return all(state["leader"] == leader for node, state in states.items() if node not in silent)
