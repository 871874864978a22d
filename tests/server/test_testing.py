"""The server for tests: quick, on a free port, gone afterwards; and the fixture of it."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kafkalog.testing import KafkaServer, ServerDidNotStart, kafka_server
from tests.trees import SOURCES


def answers(server: KafkaServer) -> bool:
    """Whether an ApiVersions request is answered."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as link:
        link.sendall(b"\0\0\0\x0a" + b"\0\x12\0\0\0\0\0\x07\xff\xff")
        return link.recv(8)[4:8] == b"\0\0\0\x07"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_it_serves_and_is_gone_afterwards() -> None:
    with kafka_server() as server:
        assert server.bootstrap == f"127.0.0.1:{server.port}"
        assert answers(server)
        pid, directory = server.pid, server.directory
        assert directory.is_dir()
    assert not is_alive(pid)
    assert not directory.parent.exists()


def test_topics_that_are_there_from_the_start(tmp_path: Path) -> None:
    with kafka_server(topics={"orders": 3}, directory=tmp_path / "data"):
        pass
    assert sorted(one.name for one in (tmp_path / "data").glob("orders-*")) == ["orders-0", "orders-1", "orders-2"]
    with kafka_server(topics=["orders"], directory=tmp_path / "data") as server:
        assert answers(server)


def test_killed_and_started_again_it_has_the_port_it_had() -> None:
    with kafka_server(topics=["kept"]) as server:
        before = server.bootstrap
        server.kill()
        server.start()
        assert server.bootstrap == before
        assert answers(server)


def test_a_wrong_setting_is_told() -> None:
    with pytest.raises(ServerDidNotStart, match=r"num\.partitions"), kafka_server(settings={"num.partitions": "0"}):
        raise AssertionError("it started")


def test_ctrl_c_is_for_the_test() -> None:
    with kafka_server() as server:
        os.kill(server.pid, signal.SIGINT)
        assert answers(server)


def test_it_ends_with_the_test_however_that_ends() -> None:
    code = "import os, kafkalog.testing as t\n"
    code += "with t.kafka_server() as server: print(server.pid, flush=True); os.kill(os.getpid(), 9)"
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    pid, deadline = int(ended.stdout), time.monotonic() + 20
    while is_alive(pid):
        assert time.monotonic() < deadline, "the server outlives the test"
        time.sleep(0.02)


CONFTEST = """
import pytest
pytest_plugins = ["kafkalog.pytest_plugin"]

@pytest.fixture(scope="session")
def kafka_server_topics():
    return {"orders": 2}
"""
TEST = """
import socket

def test_one(kafka_server):
    assert (kafka_server.directory / "orders-1").is_dir()
    socket.create_connection(("127.0.0.1", kafka_server.port)).close()

def test_two(kafka_server):
    assert kafka_server.bootstrap
"""


def test_the_fixture(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr
