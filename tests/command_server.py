"""A process that forks for each command: most of a short command's work is the start of Python and what it imports.

A run is a process of its own all the same, with the directory, variables and pipes of its caller. What a command has
imported, those after it find imported.
"""

import atexit
import gc
import json
import os
import random
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

PACKAGES = {
    "click", "deltalake", "duckdb", "fastavro", "kafkalog", "lark", "numpy", "pandas", "pyarrow", "pydantic",
    "pyiceberg", "sqlalchemy",
}  # fmt: skip
"""Packages that the server imports once a command has imported them; none starts a thread at its import."""
AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC", "OMP", "OPENBLAS", "ARROW", "KAFKALOG_CPU")
"""Prefixes of variables that the interpreter and libraries read when they start."""
LARGEST = 64 << 10
"""Size of a request that is always sent in one piece."""
IS_POSSIBLE = hasattr(os, "pidfd_open")


def read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a fork takes over from the server."""
    return {name: value for name, value in environ.items() if name.startswith(AT_START)}


class CommandServer:
    """Runs commands in forks of one process; threads may run some at once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._at_start = read_at_start(environ)
        self._owner = os.getpid()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.command_server", str(theirs.fileno())]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=dict(environ), cwd=Path(__file__).parents[1],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        atexit.register(self.close)

    def close(self) -> None:
        """End the server once its commands have ended."""
        self._control.close()
        if os.getpid() == self._owner:
            self._process.wait()

    def run(
        self, arguments: list[str], stdin: bytes, cwd: str, environ: Mapping[str, str], timeout_s: int
    ) -> "subprocess.CompletedProcess[bytes] | None":
        """Return the finished program, a module or a file, as `arguments` begin; None if a fork cannot run it."""
        request = json.dumps([timeout_s, arguments, cwd, dict(environ)]).encode()
        if len(request) > LARGEST or read_at_start(environ) != self._at_start:
            return None
        ours, given = zip(*(os.pipe() for _ in range(4)), strict=True)
        ours, given = (given[0], *ours[1:]), (ours[0], *given[1:])  # we write the first, and read the others
        socket.send_fds(self._control, [request], given)
        for fd in given:
            os.close(fd)
        errors, start = list[bytes](), time.monotonic()
        threads = [
            threading.Thread(target=_feed, args=(ours[0], stdin)),
            threading.Thread(target=lambda: errors.append(_read(ours[2]))),
        ]
        for thread in threads:
            thread.start()
        output, status = _read(ours[1]), int(_read(ours[3]))
        for thread in threads:
            thread.join()
        if status == -signal.SIGKILL and time.monotonic() - start > timeout_s:
            raise subprocess.TimeoutExpired(arguments, timeout_s, output, errors[0])
        return subprocess.CompletedProcess(arguments, status, output, errors[0])


def _feed(fd: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(fd, "wb") as file:
        file.write(data)


def _read(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def _serve(control: socket.socket) -> int | None:
    """Fork for each request; return where to report modules in a fork that is to run its command, None at the end."""
    waiting = selectors.DefaultSelector()
    waiting.register(control, selectors.EVENT_READ)
    while True:
        for key in list(waiting.get_map().values()):
            if key.fileobj is not control and time.monotonic() > key.data[0]:
                os.kill(key.data[1], signal.SIGKILL)
        for key, _ in waiting.select(None if len(waiting.get_map()) == 1 else 1):
            if key.fileobj is not control:
                waiting.unregister(key.fileobj)
                _finish(key.fd, *key.data[1:])
                continue
            request, given, *_ = socket.recv_fds(control, LARGEST, 4)
            if not request:
                return None
            timeout_s, *rest = json.loads(request)
            learned, report = os.pipe()
            gc.freeze()  # forks share the pages of what there is, whatever they collect
            if (pid := os.fork()) == 0:
                waiting.close()
                control.detach()
                return _become(given, report, *rest)
            for fd in (*given[:3], report):
                os.close(fd)
            end = time.monotonic() + timeout_s
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (end, pid, given[3], learned))


def _finish(pidfd: int, pid: int, answer: int, learned: int) -> None:
    """Answer for a command that has ended, then import what it has imported."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(pidfd)
    with open(answer, "w") as file:
        file.write(str(status))
    os.set_blocking(learned, False)  # what a command has started may go on, with this end of it open
    with open(learned, "rb", buffering=0) as file:
        names = file.read(LARGEST) or b""
    for name in names.decode().split():
        with suppress(Exception):
            import_module(name)


def _become(given: list[int], report: int, arguments: list[str], cwd: str, environ: dict[str, str]) -> int:
    """Take over what a command would be started with; return where it reports its modules."""
    for number in range(3):
        os.dup2(given[number], number)
    os.dup2(report, given[0], inheritable=False)  # whatever number that is: above 2
    os.closerange(3, given[0])
    os.closerange(given[0] + 1, 1 << 16)
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        old = getattr(sys, name)
        buffering = 1 if name == "stderr" else -1
        new = open(fd, mode, buffering, encoding=old.encoding, errors=old.errors, closefd=False)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(cwd)
    sys.argv = arguments
    sys.path[0] = os.path.dirname(arguments[0]) or cwd  # as for a script, and for a module
    random.seed()
    return given[0]


def _report(fd: int, known: set[str]) -> None:
    names = [name for name in sys.modules if name not in known and name.partition(".")[0] in PACKAGES]
    os.write(fd, " ".join(names).encode())


def main() -> None:
    """Serve the socket whose descriptor is the argument; in a fork, run the program as Python does."""
    report = _serve(socket.socket(fileno=int(sys.argv[1])))
    if report is None:
        return
    atexit.register(_report, report, set(sys.modules))
    program = sys.argv[0]
    try:
        if program.endswith(".py"):
            runpy.run_path(program, run_name="__main__")
        else:
            sys.modules.pop(program, None)  # as others have imported it, beside the one that runs
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        _end(end.code)
    _end(None)


def _end(status: str | int | None) -> None:
    """End as the interpreter does, but leave what modules hold: to clear all of them takes longer than a command."""
    if not isinstance(status, int | None):
        print(status, file=sys.stderr)
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # what says something as it goes, such as a file that was left open
    for stream in (sys.stdout, sys.stderr):
        with suppress(ValueError):  # a command may have closed it
            stream.flush()
    os._exit(status or 0)


if __name__ == "__main__":
    main()
