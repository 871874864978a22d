"""A Python for Spark's workers that has imported what they import: each is a fork of it, which takes no half second.

`warm_python` gives the path of a program that Spark starts as it does a Python (`PYSPARK_PYTHON`). It hands its
arguments, environment and files to the process that has imported everything, and ends as the fork does.
"""

import array
import contextlib
import marshal
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
STANDARD = (0, 1, 2)
SIZE_BYTES = 8
PRELOADED = (
    "pyspark.worker", "pyspark.sql.worker.create_data_source", "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read", "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write", "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.streaming.python_streaming_source_runner", "pyspark_kafkalog", "kafkalog.spark.source",
    "kafkalog.spark.sink", "kafkalog.spark.stream", "kafkalog.spark.reading",
)  # fmt: skip


@contextlib.contextmanager
def warm_python() -> Iterator[str]:
    """Give the path of the program; its Python ends with the block."""
    import shlex
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(prefix="kafkalog-") as made, socket.socket(socket.AF_UNIX) as listening:
        program, address = Path(made, "python"), str(Path(made, "warm"))
        stub = " ".join(map(shlex.quote, (sys.executable, "-I", "-S", __file__, address)))
        program.write_text(f'#!/bin/sh\nexec {stub} "$@"\n')
        program.chmod(0o755)
        listening.bind(address)
        listening.listen(64)
        command = [sys.executable, "-m", "tests.spark.warm_python", str(listening.fileno())]
        files = (listening.fileno(),)
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, pass_fds=files):  # ends with its input
            yield str(program)


def hand_over(address: str, arguments: list[str]) -> int:
    """Run a program in a fork of the warm Python, with the files of this process; return its status."""
    given = marshal.dumps((arguments, dict(os.environ), os.getcwd()))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", STANDARD))]
        connection.sendmsg([len(given).to_bytes(SIZE_BYTES)], rights)
        connection.sendall(given)
        return (connection.recv(1) or b"\1")[0]


def serve(listening: socket.socket) -> None:
    """Fork for each program that is handed over, until standard input ends; a fork ends with who handed it over."""
    import selectors

    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as ready:
        for one in (sys.stdin, woken, listening):
            ready.register(one, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is listening:
                    connection = listening.accept()[0]
                    with contextlib.suppress(EOFError, ValueError):  # its process was killed meanwhile
                        pid = start(connection)
                        running[pid] = connection
                        ready.register(connection, selectors.EVENT_READ, pid)
                elif key.fileobj is woken:
                    woken.recv(1024)
                elif key.data in running:
                    ready.unregister(running[key.data])
                    os.kill(key.data, signal.SIGTERM)
            for pid, status in reaped():
                connection = running.pop(pid)
                with contextlib.suppress(KeyError):
                    ready.unregister(connection)
                with connection, contextlib.suppress(OSError):
                    connection.sendall(bytes([status % 256]))


def reaped() -> Iterator[tuple[int, int]]:
    """Yield the forks that have ended, with their status."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended[0], os.waitstatus_to_exitcode(ended[1])


def start(connection: socket.socket) -> int:
    """Return the process id of a fork that runs what is handed over."""
    size, files, _, _ = socket.recv_fds(connection, SIZE_BYTES, len(STANDARD))
    with connection.makefile("rb") as stream:
        arguments, environment, directory = marshal.loads(stream.read(int.from_bytes(size)))
    if pid := os.fork():
        for one in files:
            os.close(one)
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for one, standard in zip(files, STANDARD, strict=True):
            os.dup2(one, standard)
        os.closerange(3, max(*files, connection.fileno(), 64) + 1)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory)
        status = run(arguments)
    finally:
        os._exit(status)


def run(arguments: list[str]) -> int:
    """Run `-m MODULE ARGUMENT ...` or `-c PROGRAM ARGUMENT ...` as Python does, and return its status."""
    import atexit
    import runpy
    import traceback

    option, what, *rest = arguments
    sys.argv = [what if option == "-m" else option, *rest]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    status: object = 0
    try:
        if option == "-m":
            sys.modules.pop(what, None)
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            assert option == "-c", arguments
            exec(what, {"__name__": "__main__"})
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status if isinstance(status, int) else status is not None


def main() -> int:
    if len(sys.argv) > 2:
        return hand_over(sys.argv[1], sys.argv[2:])
    import gc
    import importlib

    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
