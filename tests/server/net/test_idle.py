"""Ten thousand clients that say nothing, or half a request, and one that wants to be served."""

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafkalog.server.running import raise_descriptor_limit
from tests.server.net.networks import add_length

CLIENTS = 10_000
MOST_MB = 150
ASKED = add_length(b"\0\x12\0\0\0\0\0\7\xff\xff")
"""ApiVersions 0, which is answered without a login."""
HALF = ASKED[:-3]


def memory_mb(pid: int) -> float:
    fields = dict(line.split(":") for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def connect_socket(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def is_served(sock: socket.socket) -> bool:
    sock.sendall(ASKED)
    size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
    return sock.recv(size, socket.MSG_WAITALL)[:4] == b"\0\0\0\7"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_ten_thousand_idle_connections_leave_room_for_others(tmp_path: Path) -> None:
    limit = raise_descriptor_limit()
    if limit < CLIENTS + 500:
        pytest.skip(f"{limit} files may be open at once here (ulimit -n), and {CLIENTS + 500} are needed")
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "kafkalog.cli.main", "serve", "-d", str(tmp_path / "data"), "-q"]
    command += ["--listen", "127.0.0.1:0", "--ready-file", str(ready), "-X", "connections.max.idle.ms=600000"]
    with ExitStack() as stack:
        server = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE))
        stack.callback(server.kill)
        until = time.monotonic() + 60
        while not ready.exists():
            assert server.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        port = int(ready.read_text().rpartition(":")[2])
        idle = []
        for number in range(CLIENTS):
            idle.append(stack.enter_context(connect_socket(port)))
            if number % 2:
                idle[-1].sendall(HALF)  # what comes of the rest is waited for
        other = stack.enter_context(connect_socket(port))
        assert is_served(other)
        held = len(os.listdir(f"/proc/{server.pid}/fd"))
        assert held > CLIENTS
        assert memory_mb(server.pid) <= MOST_MB
        for sock in idle[1 : CLIENTS : 97 * 2]:
            sock.sendall(ASKED[-3:])
            assert sock.recv(4, socket.MSG_WAITALL)
        for sock in idle:
            sock.close()
        assert is_served(other)
        while len(os.listdir(f"/proc/{server.pid}/fd")) > held - CLIENTS + 10:
            assert time.monotonic() < until + 120
            time.sleep(0.1)
        other.close()
        server.terminate()
        assert server.wait(60) == 0
        assert server.stderr is not None and b"Traceback" not in server.stderr.read()
