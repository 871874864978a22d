"""Clusters of several executors on this host: how the package gets to them, and what is said where it did not."""

import json
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kafkalog
from kafkalog.spark.archive import write_archive
from kafkalog.tools.compact.directories import compact
from tests.spark import speculative_job
from tests.spark.clusters import IMPORTED, JOB_S, environment, install_wheel, plain_python, quick, running, standalone
from tests.spark.compacted import make_tree
from tests.spark.conftest import why_not
from tests.tools.test_compact import NOW
from tests.tools.test_retain import content
from tests.trees import PACKAGE, ROOT

REASON = why_not()
pytestmark = [
    pytest.mark.spark, pytest.mark.slow, pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]  # fmt: skip

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
VALUES = [f"value {number}".encode() for number in range(2000)]


class Cluster(NamedTuple):
    """A running cluster: its URL, the Python of its machines, where they work, and a topic that all of them see."""

    url: str
    python: Path
    scratch: Path
    topic: Path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, on machines that do not have the package."""
    scratch = tmp_path_factory.mktemp("cluster")
    python = plain_python(scratch / "python")
    write_topic(scratch / "from")
    with standalone(scratch, python, 2) as url:
        yield Cluster(url, python, scratch, scratch / "from")


def write_topic(directory: Path) -> None:
    """A topic of two partitions with all the values."""
    with kafkalog.open_dirs(directory, "a") as dirs:
        dirs.create_topic("t", 2, {})
        for partition in range(2):
            dirs["t", partition].append([(value, value) for value in VALUES[partition::2]])


def run_job(
    master: str, python: Path, source: Path, scratch: Path, *conf: str, then: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """The finished driver, whose own Python has the package; its executors run `python`."""
    env = {**environment(python, scratch), "PYTHONPATH": IMPORTED}
    program = [sys.executable, str(ROOT / "tests/spark/cluster_job.py"), master, *map(str, (source, scratch / "to"))]
    settings = [*quick(), f"spark.local.dir={scratch}", *conf]
    log, out = scratch / "driver.log", scratch / "driver.out"
    with running([*program, *settings, "--", *then], env, log, out) as driver:
        status = driver.wait(JOB_S)
    return subprocess.CompletedProcess(program, status, out.read_text(), log.read_text())


def check_done(done: "subprocess.CompletedProcess[str]") -> list[tuple[str, str]]:
    """Two executors, and where each had the package from; all records were read and written by them."""
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.partition("\n")[0])
    assert found["sums"] == [[len(VALUES), sum(map(zlib.crc32, VALUES))]] * 2
    assert len({executor for executor, _ in found["there"]}) == 2
    return [(executor, origin) for executor, origin in found["there"]]


def test_an_archive_brings_the_package_to_machines_that_do_not_have_it(cluster: Cluster, tmp_path: Path) -> None:
    done = run_job(cluster.url, cluster.python, cluster.topic, tmp_path, "spark.cores.max=1")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "cannot import kafkalog (No module named 'kafkalog')" in done.stderr
    assert "install it on every node" in done.stderr and "spark.archives=" in done.stderr
    archive = write_archive(tmp_path / "env.tar.gz", dependencies=False)
    shipped = [f"spark.archives={archive.path}#env", "spark.executorEnv.PYTHONPATH=env"]
    done = run_job(cluster.url, cluster.python, cluster.topic, tmp_path, *shipped)
    for executor, origin in check_done(done):
        assert Path(executor).is_relative_to(cluster.scratch) and origin.startswith(f"{executor}/env/kafkalog/")


class Finished(NamedTuple):
    """A driver that has ended, and the directory with what it had and made."""

    done: "subprocess.CompletedProcess[str]"
    scratch: Path


@pytest.fixture(scope="module")
def speculating(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A driver with speculation, on machines that have the wheel; one task of its last write is slow."""
    scratch = tmp_path_factory.mktemp("speculating")
    for name in ("data", "marks"):
        (scratch / name).mkdir()
    installed = plain_python(scratch / "python")
    install_wheel(installed, scratch)
    conf = [
        "spark.speculation=true", "spark.speculation.interval=100ms", "spark.speculation.multiplier=1.1",
        "spark.speculation.quantile=0.5", "spark.speculation.efficiency.enabled=false",
    ]  # fmt: skip
    then = ["slowly", str(scratch / "data"), str(scratch / "marks")]
    return Finished(run_job(cluster.url, installed, cluster.topic, scratch, *conf, then=then), scratch)


def test_a_wheel_on_every_machine_is_enough(speculating: Finished) -> None:
    python = speculating.scratch / "python"
    assert all(Path(origin).is_relative_to(python) for _, origin in check_done(speculating.done))


def test_a_task_that_runs_twice_at_once_lands_once(speculating: Finished) -> None:
    """Speculation: of two attempts that stage the same rows, the one that Spark takes is committed."""
    assert speculating.done.returncode == 0, speculating.done.stderr[-4000:]
    data = speculating.scratch / "data"
    attempts = {path.name for path in (speculating.scratch / "marks").iterdir()}
    assert {f"{speculative_job.SLOW}.0", f"{speculative_job.SLOW}.1"} <= attempts
    with kafkalog.open(data / "t-0") as written:
        assert sorted(int(record.value) for record in written.records()) == list(range(speculative_job.ROWS))
    assert not list(data.glob("kafkalog-stage*"))


@pytest.fixture(scope="module")
def compacting(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A driver that starts a cluster of its own, and then compacts the directories `tree/a` and `tree/b` there."""
    scratch = tmp_path_factory.mktemp("compacting")
    make_tree(scratch / "tree")
    shutil.copytree(scratch / "tree", scratch / "other")
    write_topic(scratch / "from")
    python = plain_python(scratch / "python")
    home = f"spark.executorEnv.SPARK_HOME={environment(python, scratch)['SPARK_HOME']}"
    command = ["spark", "compact", "--master", LOCAL_CLUSTER, "--now", str(NOW), "--apply"]
    then = [*command, *(str(scratch / "tree" / name) for name in "ab")]
    return Finished(run_job(LOCAL_CLUSTER, python, scratch / "from", scratch, home, then=then), scratch)


def test_local_cluster_finds_the_package_where_the_driver_has_it(compacting: Finished) -> None:
    assert all(Path(origin).is_relative_to(PACKAGE) for _, origin in check_done(compacting.done))


def test_two_executors_compact_what_one_machine_does(compacting: Finished) -> None:
    """In processes of their own, which have no session and no lock in common."""
    done, scratch = compacting
    assert done.returncode == 0 and done.stdout.endswith("removed\n"), done.stdout + done.stderr[-4000:]
    compact([scratch / "other" / name for name in "ab"], apply=True, now_ms=NOW)
    logs = [
        {name: data for name, data in content(scratch / one).items() if name.endswith(".log")}
        for one in ("tree", "other")
    ]
    assert logs[0] == logs[1]
