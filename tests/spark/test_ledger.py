"""The ledger is what was written or an error, never something in between, and does not grow without end."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import CorruptCheckpoint, KafkalogError, StorageError
from kafkalog.landing import ledger as ledgers
from kafkalog.landing.ledger import (
    LEDGER_FILE,
    MAX_EPOCH,
    Intent,
    Ledger,
    Mark,
    Producer,
    Target,
    format_ledger,
    fresh_producer,
    parse_ledger,
    read_ledger,
    write_ledger,
)
from kafkalog.landing.staging import Job, StagedFile
from tests.faults import FaultFS
from tests.spark.sink_cases import QUERY, key

LONG = st.integers(0, 2**63 - 1)
IDS = st.from_regex(r"[A-Za-z0-9_-]{1,120}", fullmatch=True)
JOBS = st.builds(Job, st.sampled_from(["query", "job"]), IDS)
PRODUCERS = st.builds(Producer, LONG, st.integers(0, MAX_EPOCH))
TOPICS = st.from_regex(r"[a-z][A-Za-z0-9._-]{0,40}", fullmatch=True)
NAMES = st.builds("kafkalog-stage.{}.{}.{}.{}.{:08x}".format, JOBS, LONG, st.integers(0, 999), LONG,
                  st.integers(0, 2**32 - 1))  # fmt: skip
FILES = st.builds(StagedFile, NAMES, LONG, st.integers(0, 2**32 - 1), LONG)
TARGETS = st.builds(
    lambda topic, number, start, some, more: Target(key(topic, number), start, some, some + more),
    TOPICS, st.integers(0, 2**31 - 1), LONG, st.integers(0, 2**40), st.integers(0, 2**40),
)  # fmt: skip
INTENTS = st.builds(
    Intent, JOBS, LONG, st.booleans(), PRODUCERS, st.lists(FILES, max_size=3).map(tuple),
    st.lists(TARGETS, max_size=3).map(tuple), st.dictionaries(TOPICS, st.integers(1, 5000), max_size=2),
)  # fmt: skip
LEDGERS = st.builds(
    Ledger, PRODUCERS, st.dictionaries(JOBS, st.builds(Mark, LONG, LONG), max_size=4), st.none() | INTENTS
)


@given(LEDGERS)
def test_what_is_written_is_read(ledger: Ledger) -> None:
    assert parse_ledger(format_ledger(ledger)) == ledger


@given(LEDGERS, st.data())
def test_a_changed_byte_is_an_error(ledger: Ledger, data: st.DataObject) -> None:
    content = bytearray(format_ledger(ledger))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((ValueError, TypeError, KafkalogError)):
        parse_ledger(bytes(content))


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 50, b"[]\n00000000\n", b"{" * 5000])
def test_a_file_that_is_none_is_told_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LEDGER_FILE).write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match=r"ledger is damaged.*restore it from a copy") as caught:
        read_ledger(str(tmp_path))
    assert caught.value.path == str(tmp_path / LEDGER_FILE)


def sign(text: bytes) -> bytes:
    from kafkalog._core.bytes.crc import crc32c

    return b"%b\n%08x\n" % (text, crc32c(text))


@pytest.mark.parametrize(
    "text",
    [
        b'{"version":2}',
        b"[1]",
        b'{"version":1}',
        b'{"version":1,"producer":[1,2],"marks":[],"intent":null}',
        b'{"version":1,"producer":[1,2],"marks":{},"intent":{"job":"query-a"}}',
        b'{"version":1,"producer":[1,2],"marks":{},"intent":{"job":7,"batch":1,"keep":true,"producer":[1,2]}}',
        b'{"version":1,"producer":[1],"marks":{},"intent":null}',
        b'{"version":1,"producer":[1,99999],"marks":{},"intent":null}',
        b'{"version":1,"producer":[1,2],"marks":{"../x":[1,2]},"intent":null}',
        b'{"version":1,"producer":[1,2],"marks":{},"intent":{"job":"query-a","batch":1,"keep":true,"producer":[1,2],'
        b'"files":[["../../etc/passwd",1,2,3]],"targets":[],"make":{}}}',
        b'{"version":1,"producer":[1,2],"marks":{},"intent":{"job":"query-a","batch":1,"keep":true,"producer":[1,2],'
        b'"files":[],"targets":[["../t",0,0,0,1]],"make":{}}}',
        b'{"version":1,"producer":[1,2],"marks":{},"intent":{"job":"query-a","batch":1,"keep":true,"producer":[1,2],'
        b'"files":[],"targets":[["t",0,0,2,1]],"make":{}}}',
    ],
)
def test_names_and_numbers_are_not_believed(tmp_path: Path, text: bytes) -> None:
    (tmp_path / LEDGER_FILE).write_bytes(sign(text))
    with pytest.raises(CorruptCheckpoint):
        read_ledger(str(tmp_path))


@pytest.mark.parametrize("clock", [1, -1])
def test_it_remembers_the_jobs_that_landed_last(monkeypatch: pytest.MonkeyPatch, clock: int) -> None:
    monkeypatch.setattr(ledgers, "MAX_MARKS", 3)
    ledger = Ledger(fresh_producer(), {})
    for number in range(6):
        intent = Intent(Job.batch(f"j{number % 5}"), 0, True, ledger.producer, (), (), {})
        ledger = ledger.intending(intent).done(10 + clock * number)
        ledger = parse_ledger(format_ledger(ledger))
    assert [job.id for job in ledger.marks] == ["j3", "j4", "j0"]


def test_a_job_that_cannot_come_again_is_not_remembered() -> None:
    intent = Intent(Job.batch("random"), 0, False, fresh_producer(), (), (), {})
    assert Ledger(fresh_producer(), {}).intending(intent).done(1).marks == {}


def test_each_commit_has_a_producer_of_its_own() -> None:
    first = fresh_producer()
    assert first.next() == Producer(first.id, 1)
    assert Producer(5, MAX_EPOCH).next().epoch == 0
    assert Producer(5, MAX_EPOCH).next().id >= 2**62


def test_a_disk_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    old = Ledger(fresh_producer(), {QUERY: Mark(1, 2)})
    write_ledger(str(tmp_path), old)
    for op in ("pwrite", "fsync", "rename"):
        fs = FaultFS()
        fs.fail(op, path=LEDGER_FILE)
        with pytest.raises(StorageError, match="ledger"):
            write_ledger(str(tmp_path), Ledger(fresh_producer(), {}), fs=fs)
    assert read_ledger(str(tmp_path)) == old
