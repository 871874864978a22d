"""The topics file: what is kept, and every way it can be damaged."""

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import (
    ConfigError,
    CorruptCheckpoint,
    IllegalArgument,
    InvalidPartitions,
    InvalidTopic,
    StorageError,
)
from kafkalog.manager.topics import (
    MAX_GONE,
    TOPICS_FILE,
    TopicEntry,
    TopicStore,
    _without_repeats,
    format_topics,
    parse_file,
)
from kafkalog.storage.partition_metadata import new_topic_id
from tests.faults import FaultFS, each_failure
from tests.unprivileged import plain_directory, unprivileged

ID = "AAAAAAAAAAAAAAAAAAAACg"


def topics_json(**changes: Any) -> bytes:
    entry = {"id": ID, "partitions": 2, "configs": {"segment.ms": "5"}} | changes
    return json.dumps({"version": 1, "topics": {"a": entry}}).encode()


def test_nothing_there(tmp_path: Path) -> None:
    store = TopicStore(tmp_path)
    assert (store.topics(), store.names(), store.get("a")) == ({}, [], None)
    assert os.listdir(tmp_path) == []


def test_what_is_ensured_is_read_back(tmp_path: Path) -> None:
    store = TopicStore(tmp_path)
    made = store.ensure("b.c", partitions=3, settings={"segment_bytes": 1 << 20, "cleanup.policy": "compact"})
    assert made == TopicEntry("b.c", made.topic_id, 3, {"segment.bytes": "1048576", "cleanup.policy": "compact"})
    assert len(made.topic_id) == 22
    other = store.ensure("a")
    assert other.topic_id != made.topic_id
    assert TopicStore(tmp_path).topics() == {"a": other, "b.c": made}
    assert TopicStore(tmp_path).get("b.c") == made
    assert store.names() == ["a", "b.c"]
    assert os.listdir(tmp_path) == [TOPICS_FILE]


def test_a_known_topic_keeps_id_and_settings_and_only_grows(tmp_path: Path) -> None:
    store = TopicStore(tmp_path)
    made = store.ensure("a", partitions=2, settings={"segment.ms": "5"})
    before = os.stat(store.path).st_mtime_ns, Path(store.path).read_bytes()
    assert store.ensure("a", partitions=1, settings={"segment.ms": "6"}) == made
    assert (os.stat(store.path).st_mtime_ns, Path(store.path).read_bytes()) == before
    assert store.ensure("a", partitions=5) == made._replace(partitions=5)
    assert store.get("a") == made._replace(partitions=5)


def test_the_last_ids_that_are_gone_are_kept_and_those_of_live_topics(tmp_path: Path) -> None:
    store = TopicStore(tmp_path)
    ids = [new_topic_id() for _ in range(MAX_GONE + 5)]
    for topic_id in ids[:3]:
        store.remove(["a"], [topic_id])
        store.remove(["a"], [topic_id])
    assert store.read().gone == tuple(ids[:3])
    store.ensure("a", topic_id=ids[1])
    path = tmp_path / TOPICS_FILE
    path.write_bytes(format_topics(store.topics(), ids))
    assert store.read().gone == (ids[1], *ids[5:])
    store.remove(["a"], [ids[1]])
    assert store.read() == ({}, tuple(ids[5:]))


@pytest.mark.parametrize("gone", [5, "x", [1], {"a": "b"}])
def test_ids_that_are_gone_are_a_list_of_texts(gone: object) -> None:
    with pytest.raises(ValueError, match="'gone' is not a list of ids"):
        parse_file(json.dumps({"version": 1, "topics": {}, "gone": gone}).encode())


def test_bad_arguments_write_nothing(tmp_path: Path) -> None:
    store = TopicStore(tmp_path)
    for name in ("", "..", "../a", "a/b", "a" * 250):
        with pytest.raises(InvalidTopic):
            store.ensure(name)
    for count in (0, -1, 2**31 + 1, True, 1.0):
        with pytest.raises(InvalidPartitions):
            store.ensure("a", partitions=count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        store.ensure("a", settings={"segment.ms": "0"})
    for bad in ("", "AAAAAAAAAAAAAAAAAAAAAA", "x" * 23):
        with pytest.raises(IllegalArgument):
            store.ensure("a", topic_id=bad)
    assert os.listdir(tmp_path) == []


def test_an_id_that_is_given_is_a_new_topic_s(tmp_path: Path) -> None:
    """A partition directory that a broker made has its topic's id already."""
    store = TopicStore(tmp_path)
    assert store.ensure("a", topic_id=ID).topic_id == ID
    assert store.ensure("a", partitions=2, topic_id=new_topic_id()).topic_id == ID


def test_threads_lose_no_topic(tmp_path: Path) -> None:
    names = [f"t{i}" for i in range(16)]
    threads = [threading.Thread(target=TopicStore(tmp_path).ensure, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert TopicStore(tmp_path).names() == sorted(names)


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (b"", "Expecting value"),
        (b"\0" * 100, "Expecting value"),
        (b"\xff\xfe", "utf-8"),
        (topics_json()[:-5], "Unterminated"),
        (b"[]", "not an object with"),
        (b"{}", "not an object with"),
        (b'{"version": 1, "topics": []}', "not an object with"),
        (b'{"version": 2, "topics": {}}', "version 2 is unknown"),
        (b'{"topics": {}}', "version None"),
        (b'{"version": true, "topics": {}}', "version True"),
        (b'{"version": 1, "topics": {"a": 1}}', "topic 'a': its entry is not an object"),
        (b'{"version": 1, "topics": {"a": {}, "a": {}}}', "'a' is repeated"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"version": 1, "topics": {"../x": {}}}', "not allowed"),
        (topics_json(id=None), "'id' is missing"),
        (topics_json(id="short"), "is not a topic id"),
        (topics_json(id="AAAAAAAAAAAAAAAAAAAAAA"), "zero"),
        (topics_json(id="AAAAAAAAAAAAAAAAAAA+Cg"), "is not a topic id"),
        (topics_json(partitions=0), "number of partitions is 0"),
        (topics_json(partitions="2"), "number of partitions is '2'"),
        (topics_json(configs=[]), "'configs' is not an object"),
        (topics_json(configs={"segment.ms": "0"}), "segment.ms"),
        (topics_json(configs={"no.such": "0"}), "no.such"),
        (topics_json(configs={"segment.ms": None}), "'segment.ms' is not a string"),
    ],
)
def test_damage_names_the_file_and_what_to_do(tmp_path: Path, damaged: bytes, reason: str) -> None:
    """Nothing is written over a file that cannot be read: its topics would be lost."""
    path = tmp_path / TOPICS_FILE
    path.write_bytes(damaged)
    store = TopicStore(tmp_path)
    for call in (store.topics, lambda: store.ensure("b")):
        with pytest.raises(CorruptCheckpoint) as caught:
            call()
        assert reason in str(caught.value)
        assert caught.value.path == str(path)
        assert "records are untouched" in str(caught.value)
    assert path.read_bytes() == damaged


@given(st.binary(max_size=100))
def test_any_bytes_are_topics_or_a_value_error(data: bytes) -> None:
    try:
        parse_file(data)
    except (ValueError, RecursionError):
        pass


def test_unknown_fields_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / TOPICS_FILE).write_bytes(topics_json(later="field"))
    assert TopicStore(tmp_path).get("a") == TopicEntry("a", ID, 2, {"segment.ms": "5"})


def test_a_full_disk_keeps_the_old_topics(tmp_path: Path) -> None:
    TopicStore(tmp_path).ensure("a")
    before = Path(tmp_path / TOPICS_FILE).read_bytes()
    for nth in each_failure():
        (tmp_path / TOPICS_FILE).write_bytes(before)
        fs = FaultFS()
        rule = fs.fail(nth=nth, times=1, partial=7)
        try:
            TopicStore(tmp_path, fs=fs).ensure("b")
        except StorageError as error:
            assert (error.errno, error.path) == (errno.ENOSPC, str(tmp_path / TOPICS_FILE))
            assert TopicStore(tmp_path).names() in (["a"], ["a", "b"])
            assert os.listdir(tmp_path) == [TOPICS_FILE]
        if not rule.fired:
            assert TopicStore(tmp_path).names() == ["a", "b"]
            break


def test_no_permission() -> None:
    with plain_directory() as directory:
        TopicStore(directory).ensure("a")
        (directory / TOPICS_FILE).chmod(0)
        directory.chmod(0o500)
        with unprivileged(), pytest.raises(StorageError, match="permission") as caught:
            TopicStore(directory).topics()
        assert caught.value.errno == errno.EACCES
        (directory / TOPICS_FILE).chmod(0o444)
        with unprivileged(), pytest.raises(StorageError, match="permission"):
            TopicStore(directory).ensure("b")
        assert TopicStore(directory).names() == ["a"]


def test_a_repeated_name_among_many_is_found_in_one_pass() -> None:
    compared = 0

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    names = [Name(number) for number in (*range(2000), 1999)]
    with pytest.raises(ValueError, match="'1999' is repeated"):
        _without_repeats([(name, None) for name in names])
    assert compared < 100 * len(names)
