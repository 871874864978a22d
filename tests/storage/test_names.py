"""Names of files and directories (format.md §7, §9), and names that try to be paths."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import IllegalArgument, InvalidTopic, NotAPartition
from kafkalog.storage import names
from kafkalog.storage.names import parse_base_offset, parse_dir, parse_topic_partition_dir, validate_topic
from kafkalog.types import TopicPartition

LONG = "t" * 249


def test_segment_file_names() -> None:
    """SEGS: 20 digits, zero-padded, whatever the kind."""
    assert names.log_file_name(0) == "00000000000000000000.log"
    assert names.log_file_name(2**63 - 1) == "09223372036854775807.log"
    assert names.log_file_name(42, names.DELETED_SUFFIX) == "00000000000000000042.log.deleted"
    assert names.index_file_name(42) == "00000000000000000042.index"
    assert names.time_index_file_name(42, ".cleaned") == "00000000000000000042.timeindex.cleaned"
    assert names.txn_index_file_name(42, ".swap") == "00000000000000000042.txnindex.swap"
    assert names.snapshot_file_name(42) == "00000000000000000042.snapshot"
    for bad in (-1, 2**63):
        with pytest.raises(IllegalArgument):
            names.log_file_name(bad)


@given(st.integers(0, 2**63 - 1), st.sampled_from([".log", ".index", ".timeindex.deleted", ""]))
def test_base_offset_comes_back_from_the_name(offset: int, suffix: str) -> None:
    assert parse_base_offset(names.base_name(offset) + suffix) == offset
    assert parse_base_offset("/some/dir/" + names.base_name(offset) + suffix) == offset


@pytest.mark.parametrize(
    "name", ["", ".log", "a.log", "-1.log", "1a.log", "9" * 20 + ".log", "1" * 21, "٣.log", "+1.log"]
)
def test_names_without_an_offset(name: str) -> None:
    assert parse_base_offset(name) is None
    assert not names.is_log_file(name) and not names.is_index_file(name)


def test_kinds_of_files() -> None:
    assert names.is_log_file("00000000000000000000.log")
    assert not names.is_log_file("00000000000000000000.log.deleted")
    assert not names.is_log_file("00000000000000000000.index")
    assert all(names.is_index_file(f"0.{kind}") for kind in ("index", "timeindex", "txnindex"))
    assert not names.is_index_file("0.index.swap")


@pytest.mark.parametrize("name", ["a", "A9._-", "...", ".hidden", "-", "-a", LONG, "__consumer_offsets", "a.b_c"])
def test_legal_topics(name: str) -> None:
    assert validate_topic(name) == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", LONG + "t", "a/b", "../a", "/etc", "a\\b", "a b", "a\0", "a\n", "ü", "a:b", "a*", "\ud800"],
)
def test_illegal_topics_and_those_that_try_to_leave_the_directory(name: str) -> None:
    with pytest.raises(InvalidTopic) as caught:
        validate_topic(name)
    assert caught.value.code == 17
    assert "a-z A-Z 0-9" in str(caught.value)
    assert str(caught.value).isprintable()


@given(st.text(max_size=300))
def test_a_validated_topic_never_leaves_its_directory(name: str) -> None:
    try:
        validate_topic(name)
    except InvalidTopic:
        return
    joined = os.path.normpath(os.path.join("/data", f"{name}-0"))
    assert os.path.dirname(joined) == "/data"
    assert re.fullmatch("[a-zA-Z0-9._-]{1,249}", name)


def test_topics_and_partitions_of_the_wrong_type() -> None:
    with pytest.raises(TypeError, match="bytes"):
        validate_topic(b"a")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        names.validate_partition(True)
    with pytest.raises(TypeError):
        names.validate_partition("0")  # type: ignore[arg-type]
    for bad in (-1, 2**31):
        with pytest.raises(IllegalArgument):
            names.validate_partition(bad)
    assert names.validate_partition(2**31 - 1) == 2**31 - 1


def test_collisions_of_metric_names() -> None:
    assert names.collides_with("a.b", "a_b")
    assert not names.collides_with("a.b", "a.b")
    assert not names.collides_with("a.b", "a-b")


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("orders-0", "orders", 0),
        ("a-b.c-12", "a-b.c", 12),
        ("a-03", "a", 3),
        ("a-+3", "a", 3),
        ("a--3", "a-", 3),
        ("__consumer_offsets-49", "__consumer_offsets", 49),
        (f"{LONG}-2147483647", LONG, 2147483647),
    ],
)
def test_live_directories(name: str, topic: str, partition: int) -> None:
    """Split at the last dash; the number is read as a plain int."""
    assert parse_dir(name) == (TopicPartition(topic, partition), "")


@pytest.mark.parametrize("kind", ["-delete", "-future", "-stray"])
def test_directories_in_transit(kind: str) -> None:
    """The part after the last dot is cut first: a topic may contain dots and dashes."""
    assert parse_dir(f"a.b-c-7.0123456789abcdef0123456789abcdef{kind}") == (TopicPartition("a.b-c", 7), kind)
    assert parse_dir(f"a-7.{kind}") == (TopicPartition("a", 7), kind)
    with pytest.raises(NotAPartition, match="without '.<id>'"):
        parse_dir(f"orders-0{kind}")


@pytest.mark.parametrize(
    "name",
    ["", "orders", "-0", "orders-", "orders-x", "orders-1.5", "a-2147483648", "a-٣", "a--", "../x-0", "a/b-0",
     "a b-0", "..-0", "lost+found", "a-" + "1" * 5000, "x.y-delete", f"{LONG}t-0"],
)  # fmt: skip
def test_no_partition(name: str) -> None:
    with pytest.raises(NotAPartition):
        parse_topic_partition_dir(name)


def test_names_made_come_back() -> None:
    for topic in ("a.b-c", LONG):
        for partition in (0, 5, 2147483647):
            one = TopicPartition(topic, partition)
            assert parse_topic_partition_dir(names.partition_dir_name(one)) == one
            assert parse_topic_partition_dir(names.future_dir_name(one)) == one
            for make in (names.delete_dir_name, names.stray_dir_name):
                assert len(make(one)) <= 255
                assert make(one) != make(one)
                assert parse_topic_partition_dir(make(one)).partition == partition


def test_long_topics_are_cut_as_the_reference_cuts_them() -> None:
    one = TopicPartition(LONG, 5)
    for make in (names.delete_dir_name, names.stray_dir_name):
        assert parse_topic_partition_dir(make(one)) == TopicPartition(
            "t" * (255 - (42 if make is names.delete_dir_name else 41)), 5
        )
    assert len(names.future_dir_name(one)) == 291


def test_directory_names_are_checked_when_made() -> None:
    with pytest.raises(InvalidTopic):
        names.partition_dir_name(TopicPartition("../a", 0))
    with pytest.raises(IllegalArgument):
        names.partition_dir_name(TopicPartition("a", -1))
