"""`kafkalog serve` as a process: ready file, signals, directories in use, released memory."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.nodes import SMALL, request_bytes

SOFTWARE = {"client_software_name": "a-client", "client_software_version": "1.2"}
COMMAND = [sys.executable, "-c", "from kafkalog.cli.main import main; main()", "serve"]
FEW = 60
SETTINGS = [word for name, value in SMALL.items() for word in ("-X", f"{name}={value}")]


@contextmanager
def run_server(
    tmp_path: Path, *args: str, before: str = "", stdout: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    ready = tmp_path / "ready"
    given = ["--listen", "127.0.0.1:0", "--ready-file", str(ready), *SETTINGS, *args]
    command = [sys.executable, "-c", before + COMMAND[2], "serve", *given]
    process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    try:
        while not ready.exists():
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.01)
        name, where = ready.read_text().split()
        assert name == "PLAINTEXT"
        yield process, int(where.rpartition(":")[2])
    finally:
        process.kill()
        process.communicate()


def send_request(port: int, *call: Any) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        return exchange_request(sock, *call)


def exchange_request(sock: socket.socket, *call: Any) -> bytes:
    body = request_bytes(*(call or ("api_versions", 3, SOFTWARE)))
    sock.sendall(len(body).to_bytes(4, "big") + body)
    size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
    return sock.recv(size, socket.MSG_WAITALL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_answers_until_a_signal_and_takes_its_ready_file_away(tmp_path: Path, number: int) -> None:
    # who runs the tests may have said that a hang-up is ignored, which a server takes over
    hears = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    with run_server(tmp_path, "-d", str(tmp_path / "data"), before=hears) as (process, port):
        assert send_request(port)[:4] == (7).to_bytes(4, "big")
        process.send_signal(number)
        assert process.wait(timeout=120) == 0
        assert not (tmp_path / "ready").exists()
        assert (tmp_path / "data/.kafka_cleanshutdown").exists()


def test_under_nohup_it_goes_on_when_the_terminal_is_gone(tmp_path: Path) -> None:
    ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    with run_server(tmp_path, "-d", str(tmp_path / "data"), before=ignoring) as (process, port):
        process.send_signal(signal.SIGHUP)
        assert send_request(port)
        process.terminate()
        assert process.wait(timeout=120) == 0


def test_a_signal_while_clients_are_busy(tmp_path: Path) -> None:
    """Clients that ask without end, one that does not read, one in the middle of a request."""
    with run_server(tmp_path, "-d", str(tmp_path / "data")) as (process, port):
        body = request_bytes("api_versions", 3, SOFTWARE)
        request = len(body).to_bytes(4, "big") + body
        socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        for sock in socks:
            sock.setblocking(False)
            try:
                while sock.send(request * 1000):
                    pass
            except BlockingIOError:
                pass
        half = socket.create_connection(("127.0.0.1", port))
        half.sendall(request[:9])
        process.terminate()
        assert process.wait(timeout=120) == 0
        for sock in [*socks, half]:
            sock.close()


def test_a_directory_or_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    with run_server(tmp_path, "-d", str(tmp_path / "data")) as (_, port):
        again = [*COMMAND, "-d", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
        done = subprocess.run(again, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1
        assert "lock" in done.stderr
        other = [*COMMAND, "-d", str(tmp_path / "other"), "--listen", f"127.0.0.1:{port}"]
        done = subprocess.run(other, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1
        assert "another process uses the port" in done.stderr
        assert "Traceback" not in done.stderr
        pages = [*other[:-1], "127.0.0.1:0", "--http", f"127.0.0.1:{port}"]
        done = subprocess.run(pages, capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and f"cannot listen at 127.0.0.1:{port}" in done.stderr
        assert not (tmp_path / "other").exists()
        assert send_request(port)


def test_with_too_few_descriptors_those_who_are_connected_are_served(tmp_path: Path) -> None:
    """The others wait to be accepted, and are once there is room."""
    few = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW}, {FEW})); "
    with run_server(tmp_path, "-d", str(tmp_path / "data"), before=few) as (process, port):
        opened = [socket.create_connection(("127.0.0.1", port), timeout=120) for _ in range(FEW + 20)]
        assert exchange_request(opened[0])
        assert process.poll() is None
        for sock in opened[:-1]:
            sock.close()
        assert exchange_request(opened[-1])
        opened[-1].close()


def test_memory_is_given_back(tmp_path: Path) -> None:
    with run_server(tmp_path, "--memory") as (process, port):
        assert send_request(port)
        held = {os.path.realpath(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd")}
        folder = next(Path(path).parent for path in held if path.endswith("/.lock"))
        assert folder.name.startswith("kafkalog-memory-")
        process.terminate()
        assert process.wait(timeout=120) == 0
        assert not folder.exists()


def test_full_collections_leave_new_logs_alone(tmp_path: Path) -> None:
    watch = (
        "import atexit, gc; most = [0]; "
        "gc.callbacks.append(lambda *_: most.append(max(most.pop(), gc.get_freeze_count()))); "
        "atexit.register(lambda: print('frozen', most[0], flush=True)); "
    )
    frozen = []
    for name, count in (("few", 400), ("many", 1200)):
        topic = {"name": name, "num_partitions": count, "replication_factor": -1, "assignments": [], "configs": []}
        with run_server(tmp_path, "-d", str(tmp_path / name), before=watch, stdout=subprocess.PIPE) as (process, port):
            send_request(port, "create_topics", 7, {"topics": [topic], "timeout": 60_000, "validate_only": False})
            process.terminate()
            frozen.append(int(process.communicate(timeout=60)[0].removeprefix("frozen ")))
    assert frozen[1] - frozen[0] > 1024 * 20, frozen


def test_settings_come_from_a_file_and_x_goes_before_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"process.roles=broker,controller\nlog.dirs={tmp_path / 'data'}\nnode.id=7\ncontroller.quorum.voters=1@a:1\n"
        "offsets.topic.replication.factor=1\nnum.partitions=3\n"
    )
    with run_server(tmp_path, "--config", str(file), "-X", "num.partitions=5") as (_, port):
        assert send_request(port)
        assert (tmp_path / "data/.lock").exists()
        assert '"node_id": 7' in (tmp_path / "data/kafkalog.node.json").read_text()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--memory", "-d", "x"], "omit -d"),
        (["-d", "{tmp}", "--read-only", "--add-user", "x"], "omit one of them"),
        (["-d", "{tmp}", "--listen", "nowhere"], "is not a listener"),
        (["-d", "{tmp}", "-X", "num.io.threads=0"], "num.io.threads"),
        (["-d", "{tmp}", "-X", "listeners=INSIDE://:0"], "listener.security.protocol.map"),
        (["-d", "{tmp}", "--config", "{tmp}/none"], "read the settings"),
    ],
)
def test_wrong_usage_is_told_in_one_line(tmp_path: Path, args: list[str], message: str) -> None:
    command = [*COMMAND, *(word.format(tmp=tmp_path) for word in args)]
    environment = {name: value for name, value in os.environ.items() if name != "KAFKALOG_DIR"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
