"""The fixtures of a cluster in a project that has kafkalog installed."""

import os
import subprocess
import sys
from pathlib import Path

from tests.server.test_testing import install_entry_points
from tests.trees import PACKAGE

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def kafka_cluster_topics():
    return {"orders": 2}

@pytest.fixture(scope="session")
def kafka_cluster_nodes():
    return 3

@pytest.fixture(scope="session")
def kafka_cluster_unmatched():
    return "error"

@pytest.fixture(scope="session")
def kafka_cluster_registry():
    return True
"""
TESTS = """
import asyncio
import pytest
from urllib.request import urlopen
from confluent_kafka import Producer

def produce(cluster, topic="orders"):
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    producer.produce(topic, b"a record")
    assert producer.flush(60) == 0

def test_breaks_the_cluster(kafka_cluster):
    produce(kafka_cluster)
    kafka_cluster.kill(kafka_cluster.leader)
    kafka_cluster.pause(kafka_cluster.running[0], elect=False)
    kafka_cluster.fault("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)

@pytest.mark.parametrize("word", ["a b/c", "d"])
def test_finds_it_whole_and_empty(kafka_cluster, kafka_prefix, word):
    assert kafka_cluster.running == (1, 2, 3) and kafka_cluster.leader
    assert kafka_cluster.record_count("orders") == 0
    kafka_cluster.create_topics({kafka_prefix + "mine": 1})
    assert kafka_prefix.startswith("main-") and not set(kafka_prefix) & set(" /[]")
    produce(kafka_cluster)

def test_uses_it_from_asyncio(async_kafka_cluster):
    async def use():
        assert await async_kafka_cluster.call("record_count", "orders") == 0
        async_kafka_cluster.cluster.data.stat()
    asyncio.run(use())

def subjects(url):
    with urlopen(url + "/subjects", timeout=30) as answer:
        return answer.read()

def test_schema_registry_of_the_server(schema_registry, kafka_server):
    assert schema_registry == kafka_server.registry_url
    assert subjects(schema_registry) == b"[]"

def test_schema_registry_of_the_cluster(kafka_cluster):
    assert [subjects(url) for url in kafka_cluster.registry_url.split(",")] == [b"[]"] * 3
"""


APART = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_has_names_of_its_own(kafka_cluster, kafka_prefix, number):
    kafka_cluster.create_topics({kafka_prefix + "orders": 1})
    with open("seen", "a") as file:
        file.write(f"{kafka_prefix} {kafka_cluster.bootstrap}\\n")
"""


def run_pytest(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    install_entry_points(path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(path)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = own | {"PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{path}"}
    return subprocess.run(command, capture_output=True, text=True, cwd=path, env=environment, check=False)


def test_workers_of_xdist_have_clusters_and_names_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(APART)
    ended = run_pytest(tmp_path, "-n", "2", "--dist", "load")
    assert "4 passed" in ended.stdout, ended.stdout + ended.stderr
    seen = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert len({prefix for prefix, _ in seen}) == 4
    clusters = {prefix.partition("-")[0]: bootstrap for prefix, bootstrap in seen}
    assert set(clusters) == {"gw0", "gw1"} and len(set(clusters.values())) == 2


def test_each_test_gets_a_whole_cluster_and_unmatched_faults_are_failures(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    ended = run_pytest(tmp_path)
    assert "6 passed, 1 error" in ended.stdout, ended.stdout + ended.stderr
    assert "FaultNeverMatched: no call matched: <Fault Produce: matched 0, fired 0" in ended.stdout


def test_plugin_imports_nothing_of_the_servers() -> None:
    code = "import sys, kafkalog.pytest_plugin; sys.exit(any('kafkalog.server' in one for one in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)
