"""The test's side of the process that forks a cluster's nodes, and the nodes' permanent ports."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from kafkalog.errors import IllegalState, KafkalogError
from kafkalog.testing.control import answer_to

HOST: Final = "127.0.0.1"
ANSWER_S: Final = 60
ROOT: Final = Path(__file__).resolve().parent.parent.parent
_CHILD: Final = """
import gc, sys
gc.disable()
sys.argv[1] in sys.path or sys.path.insert(0, sys.argv[1])
from kafkalog.testing.inside.{} import main
gc.freeze()
gc.enable()
main(int(sys.argv[2]))
"""
"""Modules stay until the end: to look for garbage among them is a sixth of the processor time of a short server."""


def start_inside(module: str, control: socket.socket, log: BinaryIO) -> subprocess.Popen[bytes]:
    """Start a process that runs a module of `inside`, with its end of a control socket and a file for what it says."""
    descriptor = control.fileno()
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD.format(module), str(ROOT), str(descriptor)],
        stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(descriptor,),
    )  # fmt: skip


class HostProcess:
    """A process that forks nodes when asked, and ends them with the test. Threads: one call at a time, others wait."""

    def __init__(self, log: BinaryIO) -> None:
        self._sock, theirs = socket.socketpair()
        with theirs:
            self._process = start_inside("host", theirs, log)
        self._sock.settimeout(ANSWER_S)
        self._lines = self._sock.makefile("rb")
        self._turn = threading.Lock()
        self._number = 0

    @property
    def pid(self) -> int:
        """Process id of the host."""
        return self._process.pid

    def remove_at_end(self, path: str) -> None:
        """Let the host remove this directory if the test ends without doing so."""
        self._ask({"call": "remove", "path": path}, ())

    def spawn(self, control: socket.socket, log: BinaryIO) -> int:
        """Fork a node with its end of a control socket and its log, and return its process id."""
        return int(self._ask({"call": "spawn"}, (control.fileno(), log.fileno())))

    def wait(self, pid: int, seconds: float) -> int | None:
        """Return a node's exit status once it has ended, or None if it still runs after that time."""
        answer = self._ask({"call": "wait", "pid": pid, "seconds": seconds}, ())
        return None if answer is None else int(answer)

    def pause(self, pid: int) -> None:
        """Suspend a node, and return once it is suspended."""
        self._ask({"call": "pause", "pid": pid}, ())

    def close(self) -> None:
        """End the host, and the nodes that still run; safe to call twice."""
        self._lines.close()
        with suppress(OSError):  # a fork of the test may have this end of the socket, too
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        try:
            self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, request: dict[str, Any], descriptors: tuple[int, ...]) -> Any:
        with self._turn:
            self._number += 1
            line = json.dumps({**request, "number": self._number}).encode() + b"\n"
            try:
                socket.send_fds(self._sock, [line], descriptors)
                answer = answer_to(self._number, self._lines)
            except OSError as error:
                raise KafkalogError(f"the process that starts the nodes does not answer: {error}") from None
        if answer is None:
            raise IllegalState("the process that starts the nodes has ended", hint="create another cluster")
        return answer["result"]


class Ports:
    """Ports that are bound here, so that no other program gets them while no server of the test listens there."""

    def __init__(self, count: int = 0) -> None:
        self._socks: list[socket.socket] = []
        try:
            self.numbers = [self._bind(0) for _ in range(count)]
        except BaseException:
            self.close()
            raise

    def hold(self, numbers: Iterable[int], wait_s: float = 0.0) -> None:
        """Bind these ports as well, except those that another program has for `wait_s` longer."""
        until = time.monotonic() + wait_s
        for number in numbers:
            while True:
                try:
                    self._bind(number)
                except OSError:
                    if time.monotonic() < until:
                        time.sleep(0.005)
                        continue
                break

    def _bind(self, number: int) -> int:
        sock = socket.socket()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # the server binds it as well, and listens
            sock.bind((HOST, number))
        except BaseException:
            sock.close()
            raise
        self._socks.append(sock)
        return int(sock.getsockname()[1])

    def close(self) -> None:
        """Free the ports."""
        while self._socks:
            self._socks.pop().close()
