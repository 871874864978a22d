"""A process that forks for each command: most of a short command's work is the start of Python and what it imports.

A run is a process of its own all the same, with the directory, variables and pipes of its caller. What a command has
imported, those after it find imported. Servers of tests are such commands, too.
"""

import atexit
import fcntl
import gc
import json
import math
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

PACKAGES = {
    "click", "deltalake", "duckdb", "fastavro", "kafkalog", "lark", "numpy", "pandas", "pyarrow", "pydantic",
    "pyiceberg", "sqlalchemy", "uvloop",
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

    @property
    def pid(self) -> int:
        """Process id of the server, which has ended once this process has."""
        return self._process.pid

    def close(self) -> None:
        """End the server once its commands have ended."""
        self._control.close()
        if os.getpid() == self._owner:
            self._process.wait()

    def run(
        self, arguments: list[str], stdin: bytes, cwd: str, environ: Mapping[str, str], timeout_s: int
    ) -> "subprocess.CompletedProcess[bytes] | None":
        """Return the finished program, a module or a file, as `arguments` begin; None if a fork cannot run it."""
        ours, given = zip(*(os.pipe() for _ in range(3)), strict=True)
        ours, given = (given[0], *ours[1:]), (ours[0], *given[1:])  # we write the first, and read the others
        errors, start = list[bytes](), time.monotonic()
        try:
            forked = self.start(arguments, given, cwd, environ, timeout_s)
        finally:
            for fd in given:
                os.close(fd)
        if forked is None:
            for fd in ours:
                os.close(fd)
            return None
        threads = [
            threading.Thread(target=_feed, args=(ours[0], stdin)),
            threading.Thread(target=lambda: errors.append(_read(ours[2]))),
        ]
        for thread in threads:
            thread.start()
        output, status = _read(ours[1]), forked.wait()
        for thread in threads:
            thread.join()
        if status == -signal.SIGKILL and time.monotonic() - start > timeout_s:
            raise subprocess.TimeoutExpired(arguments, timeout_s, output, errors[0])
        return subprocess.CompletedProcess(arguments, status, output, errors[0])

    def start(
        self, arguments: list[str], files: Sequence[int], cwd: str, environ: Mapping[str, str],
        timeout_s: int | None = None, imports: Sequence[str] = (),
    ) -> "Forked | None":  # fmt: skip
        """Start a program: a module, a file, or "-c" and code. None if a fork cannot run it.

        It has `files`, which stay open here, as its descriptors 0, 1, 2 and, if there are more, 3. The server imports
        `imports` first: a program that is killed reports nothing.
        """
        request = json.dumps([timeout_s, imports, arguments, cwd, dict(environ)]).encode()
        if len(request) > LARGEST or read_at_start(environ) != self._at_start:
            return None
        ours, answer = os.pipe()
        try:
            socket.send_fds(self._control, [request], [answer, *files])
        finally:
            os.close(answer)
        return Forked(arguments, ours)


class Forked:
    """A program that runs in a fork, with what tests use of `subprocess.Popen`."""

    def __init__(self, arguments: list[str], answer: int) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._answer = open(answer, "rb", buffering=0)
        self._turn = threading.Lock()
        self.pid = int(self._answer.readline())

    def wait(self, timeout: float | None = None) -> int:
        """Return its status; subprocess.TimeoutExpired if it still runs after that time."""
        if self.returncode is None:
            with selectors.DefaultSelector() as ready, suppress(ValueError):  # closed: another thread has the status
                ready.register(self._answer, selectors.EVENT_READ)
                if not ready.select(timeout):
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
        with self._turn:
            if self.returncode is None:
                with self._answer:
                    self.returncode = int(self._answer.readline())
            return self.returncode

    def poll(self) -> int | None:
        """Return its status, or None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)


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
            request, given, *_ = socket.recv_fds(control, LARGEST, 5)
            if not request:
                return None
            timeout_s, imports, *rest = json.loads(request)
            answer, *files = given
            _import(imports)
            learned, report = os.pipe()
            gc.freeze()  # forks share the pages of what there is, whatever they collect
            if (pid := os.fork()) == 0:
                waiting.close()
                control.detach()
                return _become(files, report, *rest)
            for fd in (*files, report):
                os.close(fd)
            os.write(answer, b"%d\n" % pid)
            end = math.inf if timeout_s is None else time.monotonic() + timeout_s
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (end, pid, answer, learned))


def _finish(pidfd: int, pid: int, answer: int, learned: int) -> None:
    """Answer for a command that has ended, then import what it has imported."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(pidfd)
    with open(answer, "w") as file:
        file.write(f"{status}\n")  # a fork that has not begun, or is stopped, may have this end open, too
    os.set_blocking(learned, False)  # what a command has started may go on, with this end of it open
    with open(learned, "rb", buffering=0) as file:
        names = file.read(LARGEST) or b""
    _import(names.decode().split())


def _import(names: list[str]) -> None:
    for name in names:
        if name not in sys.modules:
            with suppress(Exception):
                import_module(name)


def _become(files: list[int], report: int, arguments: list[str], cwd: str, environ: dict[str, str]) -> int:
    """Take over what a command would be started with; return where it reports its modules."""
    free = max(*files, report, 16) + 1
    report, *moved = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, free) for fd in (report, *files))
    os.closerange(3, report)
    for number, fd in enumerate(moved):
        os.dup2(fd, number)
    os.closerange(report + 1, 1 << 16)
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
    return report


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
        if program == "-c":
            _run_code(sys.argv.pop(1))
        elif program.endswith(".py"):
            runpy.run_path(program, run_name="__main__")
        else:
            sys.modules.pop(program, None)  # as others have imported it, beside the one that runs
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        _end(end.code)
    _end(None)


def _run_code(code: str) -> None:
    try:
        exec(code, {"__name__": "__main__"})
    finally:
        sys.stdout.flush()  # before the traceback, as Python does


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
