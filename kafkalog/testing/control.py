"""The test's end of the socket to a server process."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import Any, BinaryIO, Final

from kafkalog.errors import IllegalState, KafkalogError

CALL_S: Final = 60
START_S: Final = 60


class Control:
    """Calls to one server process. `server_end` is for that process. Threads: one call at a time, others wait.

    The sockets are a pair without an address: no one else can connect.
    """

    def __init__(self) -> None:
        self._sock, self.server_end = socket.socketpair()
        self._lines = self._sock.makefile("rb")
        self._turn = threading.Lock()
        self._number = 0
        self.is_broken = False
        """True once the process closed its end: it ended, or is about to."""

    def send_configuration(self, given: dict[str, Any]) -> None:
        """Send the configuration to the process that has the other end."""
        self.server_end.close()
        with suppress(ConnectionError):  # it ended already; `read_started` finds that
            self._sock.sendall(json.dumps(given).encode() + b"\n")

    def read_started(self) -> Any:
        """Return the started server's properties; None if it ended instead, or did not answer in time."""
        self._sock.settimeout(START_S)
        with suppress(ConnectionError, TimeoutError):
            line = self._lines.readline()
            return json.loads(line)["result"] if line else None
        return None

    def call(self, name: str, *, timeout_s: float = CALL_S, **given: Any) -> Any:
        """Return the result of a command. KafkalogError with its error, IllegalState if the server does not answer."""
        with self._turn:
            self._sock.settimeout(timeout_s)
            self._number += 1
            call = {"call": name, "given": given, "number": self._number}
            try:
                self._sock.sendall(json.dumps(call).encode() + b"\n")
                answer = answer_to(self._number, self._lines)
            except OSError as error:
                self.is_broken = isinstance(error, ConnectionError)
                raise IllegalState(f"the server does not answer the test's {name}: {error}") from None
        if answer is None:
            self.is_broken = True
            raise IllegalState(f"the server ended before it answered the test's {name}", hint="see its log()")
        if "error" in answer:
            raise KafkalogError(answer["error"])
        return answer["result"]

    def send_stop(self) -> None:
        """Ask the server to stop; no answer follows, but the process ends."""
        with suppress(OSError):
            self._sock.sendall(b'{"call": "stop"}\n')  # closing is not enough: a fork of the test may have it open

    def close(self) -> None:
        """Close both ends."""
        self._lines.close()
        self._sock.close()
        self.server_end.close()


def answer_to(number: int, lines: BinaryIO) -> Any:
    """Return the answer to this call, after those to calls that Ctrl-C or a time limit of the test interrupted.

    None if the other end is closed.
    """
    while line := lines.readline():
        answer = json.loads(line)
        if answer["number"] == number:
            return answer
    return None
