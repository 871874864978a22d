"""Key indexes and time ranges of all logs of a store: options of `kafkalog.open_dirs`."""

from pathlib import Path
from typing import Any

import duckdb
import pytest

import kafkalog
from kafkalog.dirs.sidecars import KeyIndexJob
from kafkalog.errors import IllegalArgument
from kafkalog.keys import manage
from kafkalog.sidecars import identity
from tests.gates import wait_until

T = 1_700_000_000_000


def fill(dirs: kafkalog.LogDirs, topic: str) -> None:
    dirs.create_topic(topic, 2)
    for number in range(2):
        log = dirs[topic, number]
        for part in range(3):
            log.append([(b"k%d" % n, b"v%d" % part, T + n) for n in range(5)])
            log.roll()


def wait_for_indexes(dirs: kafkalog.LogDirs, topic: str) -> None:
    """Wait until all closed segments of a topic have a key index."""
    wait_until(lambda: {info.state for log in dirs.logs(topic) for info in log.key_index()} == {"ok"})


@pytest.mark.parametrize("place", ["beside", "store"])
def test_a_job_builds_the_key_indexes_of_all_logs(tmp_path: Path, place: str) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        fill(dirs, "orders")
    store = True if place == "beside" else tmp_path / "indexes"
    with kafkalog.open_dirs(tmp_path / "data", "a", key_index=store) as dirs:
        wait_for_indexes(dirs, "orders")  # of before
        fill(dirs, "users")
        log = dirs["users", 1]
        assert log.get(b"k3") == log[13]
        next(job for job in dirs.jobs if job.name == "kafkalog-key-index").run()
        wait_for_indexes(dirs, "users")
        assert log.get(b"k3") == log[13] and log._keys is not None
        keys = log._keys
        wait_until(lambda: [part.index is not None for part in keys.parts.current()] == [True] * 4)
    found = [*(tmp_path / ("data" if place == "beside" else "indexes")).rglob("*.keyindex")]
    assert len(found) == 12
    with kafkalog.open_dirs(tmp_path / "data", key_index=False if store is True else store) as view:
        assert {info.state for log in view.logs("orders") for info in log.key_index()} == {"ok"}


def test_the_job_passes_over_damage(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        fill(dirs, "orders")
    file = tmp_path / "data" / "orders-0" / f"{5:020}.log"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with kafkalog.open_dirs(tmp_path / "data", "a", key_index=True) as dirs:
        wait_until(lambda: {info.state for info in dirs["orders", 1].key_index()} == {"ok"})
        wait_until(lambda: [info.state for info in dirs["orders", 0].key_index()] == ["ok", "missing", "ok"])


def test_a_failure_that_passes_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Here a file is where the store should be; it is logged once."""
    store = tmp_path / "indexes"
    store.write_bytes(b"")
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        log.append([(b"k", b"v")])
        log.roll()
        job = KeyIndexJob(lambda: [log._source], store, lambda log: None)  # type: ignore[list-item]
        for _ in range(3):
            job.job.run()
        assert len([one for one in caplog.records if "cannot build" in one.message]) == 1
        store.unlink()
        job.job.run()
        assert len([*store.rglob("*.keyindex")]) == 1


def test_what_was_built_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a roll only the new segment is looked into, and one whose index was removed or that changed."""
    looked: list[int] = []
    original = manage.build_index

    def noted(segment: Any, bound: int, *given: Any, **more: Any) -> manage.KeyIndexInfo:
        looked.append(segment.base_offset)
        return original(segment, bound, *given, **more)

    monkeypatch.setattr(manage, "build_index", noted)
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        job = KeyIndexJob(lambda: [log._source], True, lambda log: None)  # type: ignore[list-item]
        for part in range(3):
            log.append([(b"k%d" % part, b"v")])
            log.roll()
            job.job.run()
        assert looked == [0, 1, 2]
        next(Path(log.path).glob("*1.keyindex")).unlink()
        log.append([(b"k", b"v")])
        log.roll()
        job.job.run()
        assert looked == [0, 1, 2, 1, 3] and {info.state for info in log.key_index()} == {"ok"}


def test_a_reader_builds_nothing(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        fill(dirs, "orders")
    with kafkalog.open_dirs(tmp_path / "data", key_index=tmp_path / "indexes") as view:
        assert view["orders", 0].get(b"k1") == view["orders", 0][11]
        assert view.jobs == ()
    assert not (tmp_path / "indexes").exists()


@pytest.mark.parametrize("option", ["key_index", "time_ranges"])
def test_places_that_cannot_be_are_refused_at_once(tmp_path: Path, option: str) -> None:
    kafkalog.open_dirs(tmp_path / "data", "a").close()
    with pytest.raises(IllegalArgument, match=f"{option} is True in mode"):
        kafkalog.open_dirs(tmp_path / "data", **{option: True})
    for mode in ("r", "a"):
        with pytest.raises(IllegalArgument, match="data directory"):
            kafkalog.open_dirs(tmp_path / "data", mode, **{option: tmp_path / "data" / "files"})


def test_time_ranges_of_all_logs_lie_in_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "SETTLED_NS", -1)
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        fill(dirs, "orders")
    query = f"SELECT count(*) FROM orders WHERE timestamp < make_timestamptz({(T + 2) * 1000})"
    with kafkalog.open_dirs(tmp_path / "data", time_ranges=tmp_path / "times") as view, duckdb.connect() as connection:
        with kafkalog.duckdb.register(connection, view):
            assert connection.execute(query).fetchall() == [(12,)]
        with pytest.raises(IllegalArgument, match="directories that are open"):
            kafkalog.duckdb.register(connection, view, time_ranges=tmp_path / "others")
    assert len([*(tmp_path / "times").rglob("*.timeranges")]) == 6
    frame = kafkalog.polars.scan(tmp_path / "data", "orders", time_ranges=tmp_path / "times")
    assert len(frame.collect()) == 30
