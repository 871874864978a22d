"""The process that forks the nodes of a cluster: imports happen once, and its memory is shared.

The test sends a line of JSON for each request, with descriptors where it needs them. When the test ends, however that
happens, the host kills the nodes and removes the temporary directory.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from typing import Any, Final

from kafkalog.server.node.parts import import_parts
from kafkalog.server.running import loop_factory
from kafkalog.server.wire.reader import request_reader, response_reader
from kafkalog.server.wire.versions import APIS
from kafkalog.server.wire.writer import request_writer, response_writer
from kafkalog.testing.inside.serving import serve

_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG of prctl(2)
_POLL_S: Final = 0.002
_LARGEST: Final = 1 << 16
_BETWEEN_NODES: Final = (1, 3, 18, 32, 52, 53, 55, 59)
"""Keys of the calls with which nodes begin: Fetch, Metadata, ApiVersions, DescribeConfigs, those of a quorum."""
_MODULES: Final = ("kafkalog.server.quorum.links", "kafkalog.server.net.listener")


def main(descriptor: int) -> None:
    """Fork nodes as requested through the socket at this descriptor."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # they are for the test; the host ends after it
        signal.signal(number, signal.SIG_IGN)
    loop_factory()
    import_parts()
    for name in _MODULES:
        importlib.import_module(name)
    for key in _BETWEEN_NODES:
        api = APIS[key]
        importlib.import_module(f"kafkalog.server.apis.{api.name}")
        for make in (request_reader, request_writer, response_reader, response_writer):
            make(key, api.newest)
    gc.collect()
    gc.freeze()  # the collector of a node leaves these pages shared
    Host(socket.socket(fileno=descriptor)).run()


class Host:
    """The nodes that were forked and not yet waited for."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()
        self._ended: dict[int, int] = {}  # exit statuses
        self._temporary = ""
        self._prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)

    def run(self) -> None:
        """Answer until the test has ended, then end the nodes and remove the directory."""
        try:
            while self._answer_next():
                pass
        finally:
            for pid in self._children:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if self._temporary:
                shutil.rmtree(self._temporary, ignore_errors=True)

    def _answer_next(self) -> bool:
        try:
            lines, descriptors, _, _ = socket.recv_fds(self._control, _LARGEST, 2)
        except ConnectionError:
            return False
        for line in lines.splitlines():  # several, if the test abandoned calls; descriptors belong to the last one
            self._answer(json.loads(line), descriptors)
        return bool(lines)

    def _answer(self, request: dict[str, Any], descriptors: list[int]) -> None:
        answer: object = None
        if request["call"] == "spawn":
            answer = self._spawn(*descriptors)
        elif request["call"] == "wait":
            answer = self._wait(request["pid"], request["seconds"])
        elif request["call"] == "pause":
            self._pause(request["pid"])
        elif request["call"] == "remove":
            self._temporary = request["path"]
        self._control.sendall(json.dumps({"result": answer, "number": request["number"]}).encode() + b"\n")

    def _spawn(self, control: int, log: int) -> int:
        pid = os.fork()
        if pid == 0:
            self._become_node(control, log)
        os.close(control)
        os.close(log)
        self._children.add(pid)
        self._ended.pop(pid, None)
        return pid

    def _become_node(self, control: int, log: int) -> None:
        status = 1
        try:
            if self._prctl is not None:  # a stopped node would not notice the end of the test
                self._prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
            self._control.close()
            serve(socket.socket(fileno=control))
            status = 0
        except SystemExit as end:
            if isinstance(end.code, str):
                os.write(2, end.code.encode() + b"\n")
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _pause(self, pid: int) -> None:
        """Suspend a node; WNOWAIT leaves its exit status, if it has ended, to `_wait`."""
        if pid not in self._children:
            return
        os.kill(pid, signal.SIGSTOP)
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _wait(self, pid: int, seconds: float) -> int | None:
        """Return the exit status of a node, or None if it still runs after that time."""
        deadline = time.monotonic() + seconds
        while pid in self._children:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                self._children.discard(pid)
                self._ended[pid] = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_S)
        return self._ended.get(pid)
