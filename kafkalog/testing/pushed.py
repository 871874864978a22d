"""The metrics that clients pushed to a server or cluster of a test (KIP-714), in a file to which its nodes append."""

from __future__ import annotations

import json
import os
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kafkalog.errors import IllegalState
from kafkalog.testing.errors import ConditionNotMet

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kafkalog.server.requests.telemetry import PushedMetrics
    from kafkalog.testing.control import Control

_WAIT_S = 30
_POLL_S = 0.01


class PushedFile:
    """The file of a server or cluster, at `path`; None unless it was asked for."""

    def __init__(self, folder: Path, *, exists: bool) -> None:
        self.path = str(folder / "pushed-metrics") if exists else None

    def read(self) -> list[PushedMetrics]:
        """Return the pushes so far. IllegalState without a file."""
        self.check()
        assert self.path is not None
        try:
            lines = Path(self.path).read_bytes().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        return [_pushed(json.loads(line)) for line in lines]

    def check(self) -> None:
        """Raise IllegalState without a file."""
        if self.path is None:
            raise IllegalState("clients are not asked for metrics", hint="start the server with telemetry=True")


def append(path: str, pushed: PushedMetrics) -> None:
    """Append a push to the file."""
    row = {
        **pushed._asdict(), "client_instance_id": str(pushed.client_instance_id),
        "metrics": b64encode(pushed.metrics).decode(),
    }  # fmt: skip
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(json.dumps(row).encode() + b"\n")


def _pushed(row: dict[str, Any]) -> PushedMetrics:
    from kafkalog.server.requests.telemetry import PushedMetrics

    return PushedMetrics(**{
        **row, "client_instance_id": UUID(row["client_instance_id"]), "metrics": b64decode(row["metrics"]),
    })  # fmt: skip


def wait_for_subscription(controls: Callable[[], Mapping[int, Control]], name: str, settings: dict[str, str]) -> None:
    """Wait until every node that runs knows the subscription. Raise ConditionNotMet after a while."""
    deadline = time.monotonic() + _WAIT_S
    while any(one.call("subscription", subscription=name) != settings for one in controls().values()):
        if time.monotonic() >= deadline:
            raise ConditionNotMet(f"after {_WAIT_S} s a node does not know the subscription {name}")
        time.sleep(_POLL_S)
