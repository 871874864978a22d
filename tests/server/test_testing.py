"""The server for tests: quick, on a free port, gone afterwards; and the fixture of it."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kafkalog.errors import ConfigError, IllegalState
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.testing import KafkaServer, ServerDidNotStart, kafka_server
from tests.server.net.certificates import authority, certificate
from tests.trees import PACKAGE


def is_answering(server: KafkaServer) -> bool:
    """Return True if an ApiVersions request is answered."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
        link.sendall(b"\0\0\0\x0a" + b"\0\x12\0\0\0\0\0\x07\xff\xff")
        return link.recv(8)[4:8] == b"\0\0\0\x07"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before or while it is read
        return False


def test_it_serves_and_is_gone_afterwards() -> None:
    with kafka_server() as server:
        assert server.bootstrap == f"127.0.0.1:{server.port}"
        assert is_answering(server)
        pid, directory = server.pid, server.directory
        assert directory.is_dir()
    assert not is_alive(pid)
    assert not directory.parent.exists()
    with pytest.raises(IllegalState, match="with block has ended"):
        server.start()


def test_topics_that_are_there_from_the_start(tmp_path: Path) -> None:
    with kafka_server(topics={"orders": 3}, directory=tmp_path / "data"):
        pass
    assert sorted(one.name for one in (tmp_path / "data").glob("orders-*")) == ["orders-0", "orders-1", "orders-2"]
    with kafka_server(topics=["orders"], directory=tmp_path / "data") as server:
        assert is_answering(server)


def test_killed_and_started_again_it_has_the_port_it_had() -> None:
    with kafka_server(topics=["kept"]) as server:
        before = server.bootstrap
        server.kill()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port))  # as a client that gets any free port
        server.start()
        assert server.bootstrap == before
        assert is_answering(server)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"settings": {"num.partitions": "x"}}, "ConfigError: num.partitions='x'"),
        ({"settings": {"listeners": "SSL://127.0.0.1:0"}}, "ConfigError: a TLS listener has no private key"),
        ({"topics": ["a b"]}, "InvalidTopic: Topic name is invalid"),
        ({"users": {"root": ""}}, "IllegalArgument: the password is empty"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ServerDidNotStart) as raised, kafka_server(**given):
        raise AssertionError("it started")
    assert str(raised.value).startswith(f"the server did not start: {message}")
    assert "\n" not in str(raised.value)


def test_output_of_a_failed_start_is_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kafkalog.testing.hosting._CHILD", "print('a warning ' * 400)\nraise OSError('no port')")
    with caplog.at_level("DEBUG", "kafkalog.testing"):
        with pytest.raises(ServerDidNotStart) as raised, kafka_server():
            raise AssertionError("it started")
    assert str(raised.value) == "the server did not start: OSError: no port"
    assert "a warning a warning" in caplog.text and "Traceback" in caplog.text


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
def test_data_directories_are_no_settings(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError) as raised, kafka_server(settings={name: str(tmp_path / "x")}):
        raise AssertionError("it started")
    assert str(raised.value) == f"{name} cannot be set here. Hint: use directory=... instead"


def test_its_log_is_there_afterwards() -> None:
    with kafka_server(settings={"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}, users={"u": "x"}) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as link:
            body = b"\0\x24\0\0\0\0\0\x07\xff\xff\0\0\0\0"  # a token without a handshake
            link.sendall(len(body).to_bytes(4, "big") + body)
            assert link.recv(8) == b""
        said = server.log()
        assert "failed to authenticate" in said
    assert server.log().startswith(said)
    server.stop()


def test_a_slip_in_the_name_of_a_setting_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="num.partitons .*did you mean num.partitions"):
        with kafka_server(settings={"num.partitons": 3, "process.roles": "broker"}):
            pass


@pytest.fixture(scope="module")
def server() -> Iterator[KafkaServer]:
    """One for the tests that leave it as it is."""
    with kafka_server(topics="orders") as found:
        yield found


def test_one_name_is_one_topic(server: KafkaServer) -> None:
    assert [one.name for one in server.directory.glob("*-0")] == ["orders-0"]


def test_an_address_of_ipv6_is_in_brackets() -> None:
    with kafka_server(settings={"listeners": "PLAINTEXT://[::1]:0"}) as server:
        assert server.bootstrap == f"[::1]:{server.port}"
        assert [one.host for one in find_brokers(server)] == ["::1"]


def find_brokers(server: KafkaServer, **settings: str) -> list[Any]:
    """The brokers that a client of librdkafka finds."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap, **settings})
    return list(admin.list_topics(timeout=60).brokers.values())


def test_users_log_in_and_stay_over_a_restart() -> None:
    listener = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}
    with kafka_server(settings=listener, users={"ann": "secret"}) as server:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "ann", "sasl.password": "secret"}
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            assert find_brokers(server, **login, **{"sasl.mechanism": mechanism})
        server.stop()
        server.start()
        assert find_brokers(server, **login, **{"sasl.mechanism": "PLAIN"})


def test_a_listener_for_controllers_is_not_opened() -> None:
    """With a combined broker's settings: clients come by the other one, which may ask for more of them."""
    listeners = {"listeners": "CONTROLLER://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
    roles = {"controller.listener.names": "CONTROLLER", "listener.security.protocol.map": "CONTROLLER:PLAINTEXT"}
    with kafka_server(settings=listeners | roles) as server:
        assert [*server.ports] == ["PLAINTEXT"]
        server.stop()
        server.start()
        assert is_answering(server)


def test_it_starts_once(server: KafkaServer) -> None:
    with pytest.raises(IllegalState, match="is already running"):
        server.start()
    assert is_answering(server)


def test_tls_for_one_who_trusts_its_certificate(tmp_path: Path) -> None:
    trusted, key = authority(tmp_path), certificate(tmp_path, "server", "/CN=server")
    settings = {"listeners": "SSL://127.0.0.1:0,PLAIN://127.0.0.1:0", "ssl.keystore.location": str(key)}
    settings["listener.security.protocol.map"] = "SSL:SSL,PLAIN:PLAINTEXT"
    with kafka_server(topics=["t"], settings=settings) as server:
        assert list(server.ports) == ["SSL", "PLAIN"] and server.port == server.ports["SSL"]
        link = ssl.create_default_context(cafile=str(trusted)).wrap_socket(
            socket.create_connection(("127.0.0.1", server.port), timeout=60), server_hostname="localhost"
        )
        with link:
            link.sendall(b"\0\0\0\x0a" + b"\0\x12\0\0\0\0\0\x07\xff\xff")
            assert link.recv(8)[4:8] == b"\0\0\0\x07"
        with pytest.raises(ssl.SSLCertVerificationError):
            ssl.create_default_context().wrap_socket(
                socket.create_connection(("127.0.0.1", server.port), timeout=60), server_hostname="localhost"
            )


def test_it_stops_while_a_forked_process_has_all_that_is_open() -> None:
    with kafka_server() as server:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        os.close(reading)
        try:
            server.stop()
        finally:
            os.close(writing)
            os.waitpid(child, 0)


def test_it_starts_where_many_files_are_open() -> None:
    code = "import resource, os, kafkalog.testing as t\n"
    code += "resource.setrlimit(resource.RLIMIT_NOFILE, (2000, 2000)); held = [os.dup(0) for _ in range(1200)]\n"
    code += "with t.kafka_server() as server: print(server.port)"
    assert int(run_python(code).stdout) > 0


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


def test_ctrl_c_is_for_the_test(server: KafkaServer) -> None:
    os.kill(server.pid, signal.SIGINT)
    assert is_answering(server)


LISTED = 'pytest_plugins = ["kafkalog.pytest_plugin"]\n'
CONFTEST = """
import pytest

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


def install_entry_points(folder: Path) -> None:
    """Makes a distribution in `folder` with the entry points that pyproject.toml has."""
    points = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    made = folder / "installed-1.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1\n")
    (made / "entry_points.txt").write_text("[pytest11]\n" + "".join(f"{a} = {b}\n" for a, b in points.items()))


@pytest.mark.parametrize(("folder", "line"), [(".", LISTED), ("nested", "")])
def test_the_fixture(tmp_path: Path, folder: str, line: str) -> None:
    """Without a line in any conftest, and in a project that has one."""
    install_entry_points(tmp_path)
    tests = tmp_path / "tests" / folder
    tests.mkdir(parents=True)
    (tests / "conftest.py").write_text(line + CONFTEST)
    (tests / "test_it.py").write_text(TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "tests")]
    environment = os.environ | {"PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{tmp_path}"}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr


def test_a_test_may_end_with_a_full_disk(tmp_path: Path) -> None:
    """Its own error is raised, and the server closes its logs."""
    with pytest.raises(ZeroDivisionError), kafka_server(topics="orders", directory=tmp_path) as server:
        server.full_disk()
        raise ZeroDivisionError
    assert (tmp_path / CLEAN_SHUTDOWN_FILE).exists()
