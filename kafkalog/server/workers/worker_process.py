"""One worker as its main process sees it: the process, the link to it, and what it said of its partitions."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalState
from kafkalog.server.workers.link import Answer, Link, LinkLost
from kafkalog.util.shielded import shielded

if TYPE_CHECKING:
    from kafkalog.server.workers.forked import ForkedWorker

_LOG: Final = logging.getLogger(__name__)
_CHILD: Final = """
import sys
sys.argv[1] in sys.path or sys.path.insert(0, sys.argv[1])
from kafkalog.server.workers.child import main
def metrics():
    from kafkalog.metrics import prometheus_text
    return prometheus_text()
main(int(sys.argv[2]), metrics)
"""
END_SECONDS: Final = 10.0
ASK_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 5.0
"""Time that a worker that stops has to answer; a paused one never does."""


class WorkerProcess:
    """A worker's process from its start to its end; a new object for each start. `number` is 1 or more."""

    def __init__(self, number: int, answer: Answer) -> None:
        self.number = number
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_ready = False
        self._opened: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._process: subprocess.Popen[bytes] | ForkedWorker | None = None
        self._configuring: asyncio.Task[None] | None = None
        self._answer = answer
        self.link = Link(self._on_call, self._on_lost)

    def start(self, configuration: Mapping[str, Any], forked: ForkedWorker | None = None) -> None:
        """Start the process, unless it was forked; send it its configuration. `opened` says what becomes of it.

        OSError.
        """
        if forked is None:
            sock = self._spawn()
        else:
            self._process, sock = forked, forked.sock
        self._configuring = asyncio.get_running_loop().create_task(self._configure(sock, configuration))

    def _spawn(self) -> socket.socket:
        root = str(Path(__file__).resolve().parent.parent.parent.parent)
        with ExitStack() as undo:
            try:
                ours, theirs = socket.socketpair()
                undo.push(ours)
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-P", "-c", _CHILD, root, str(theirs.fileno())],
                        stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), process_group=0,
                    )  # fmt: skip
            except OSError:
                self._on_lost()
                raise
            undo.pop_all()
        return ours

    async def _configure(self, sock: socket.socket, configuration: Mapping[str, Any]) -> None:
        await self.link.open(sock)
        with suppress(LinkLost):
            await self.link.call("configure", configuration)

    async def opened(self) -> Mapping[str, Any]:
        """Wait until the worker has opened its logs and return what it has. IllegalState if it ended instead."""
        return await shielded(self._opened)

    async def _on_call(self, name: str, message: Any) -> Any:
        if name == "opened":
            if not self._opened.done():
                self._opened.set_result(message.values)
            return message._replace(values={}, body=b"")
        return await self._answer(name, message)

    def _on_lost(self) -> None:
        self.is_ready = False
        if not self._opened.done():
            self._opened.set_exception(self._ended_early())
            self._opened.exception()  # there may be no waiter left
        if not self.ended.done():
            self.ended.set_result(None)

    def _ended_early(self) -> IllegalState:
        return IllegalState(f"worker {self.number} ended while it started", hint="its last log lines say why")

    async def stop(self) -> None:
        """Let the process stop in order, also while it starts; kill it if it falls silent. LinkLost."""
        if self._configuring is not None:
            await asyncio.wait([self._configuring], timeout=SILENT_SECONDS)
        stopping = asyncio.ensure_future(self.link.call("stop"))
        try:
            while not (await asyncio.wait([stopping], timeout=ASK_SECONDS))[0]:
                await self._kill_if_silent()
        finally:
            stopping.cancel()
        stopping.result()

    async def _kill_if_silent(self) -> None:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                with suppress(LinkLost):
                    await self.link.call("ping")
        except TimeoutError:
            _LOG.error("worker %d does not answer and is killed", self.number)
            self.kill()

    async def end(self) -> None:
        """Wait for the end of the process; kill it if it does not end in time."""
        process = self._process
        if self._configuring is not None:
            await asyncio.wait([self._configuring], timeout=END_SECONDS)
            self._configuring.cancel()
        self.link.close()
        if process is None:
            return
        if await asyncio.to_thread(_was_killed, process):
            _LOG.error("worker %d did not end within %.0f s and was killed", self.number, END_SECONDS)

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None:
            self._process.kill()


def _was_killed(process: subprocess.Popen[bytes] | ForkedWorker) -> bool:
    """Wait for the end of a process; return True if it had to be killed."""
    try:
        process.wait(END_SECONDS)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
