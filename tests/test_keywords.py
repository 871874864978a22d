"""A keyword that a call does not have is a TypeError that names the near ones (design: unknown keyword = TypeError)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.aio import wrap
from kafkalog.log.log import Log
from kafkalog.log.writer import Writer
from kafkalog.util.keywords import closest_match, unknown_keyword


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with kafkalog.open(tmp_path / "t-0", "a") as made:
        made.append(b"v")
        yield made


CALLS: list[tuple[Callable[[Any], object], str]] = [
    (lambda log: log.records(strat=0), "start"),
    (lambda log: log.records(sinc=0), "since"),
    (lambda log: log.records(isolation_level="read_committed"), "isolation"),
    (lambda log: log.batches(untill=0), "until"),
    (lambda log: log.slice(stpo=3), "stop"),
    (lambda log: log.tail(time_out=1), "timeout"),
    (lambda log: log.append(b"v", compresion="none"), "compression"),
    (lambda log: log.append_bytes(b"", batch=1), "batches"),
    (lambda log: log.append_arrow(b"", column={}), "columns"),
    (lambda log: log.replicate(b"", epoch=1), "leader_epoch"),
    (lambda log: log.writer(linger=5), "linger_ms"),
    (lambda log: log.writer(batch_size=5), "batch_bytes"),
    (lambda log: kafkalog.open(log.path, "a", snyc=True), "sync"),
    (lambda log: kafkalog.open(log.path, "a", segment_byte=1 << 20), "segment.bytes"),
    (lambda log: kafkalog.open(log.path, mod="a"), "mode"),
]


@pytest.mark.parametrize(("call", "meant"), CALLS)
def test_a_keyword_nobody_knows_names_the_one_that_was_meant(
    log: Log, call: Callable[[Any], object], meant: str
) -> None:
    with pytest.raises(TypeError, match=f"did you mean ([a-z., ]*, )?{meant}") as error:
        call(log)
    assert len(str(error.value)) < 300
    assert log.end_offset == 1


APPENDS: list[Callable[[Any], object]] = [
    lambda log: log.append(b"v", sync=True),
    lambda log: log.append_bytes(b"", sync=True),
    lambda log: log.append_arrow(b"", sync=True),
    lambda log: log.replicate(b"", sync=True),
]


@pytest.mark.parametrize("call", APPENDS)
def test_an_append_says_where_sync_goes(log: Log, call: Callable[[Any], object]) -> None:
    where = r"kafkalog\.open\(\.\.\., sync=True\) or log\.writer\(sync=True\)\. It takes "
    with pytest.raises(TypeError, match=where):
        call(log)
    with log.writer() as writer, pytest.raises(TypeError, match=where):
        writer.append(b"v", sync=True)  # type: ignore[arg-type]
    assert log.end_offset == 1


def test_the_writer_says_so_too(log: Log) -> None:
    with log.writer() as writer, pytest.raises(TypeError, match="did you mean key"):
        writer.append(b"v", kye=b"k")  # type: ignore[arg-type]
    assert log.end_offset == 1


def test_and_so_does_the_face_for_asyncio(log: Log) -> None:
    async def calls() -> None:
        alog = wrap(log)
        with pytest.raises(TypeError, match="did you mean compression"):
            await alog.append(b"v", compresion="none")
        with pytest.raises(TypeError, match="did you mean start"):
            async for _ in alog.records(strat=0):
                pass
        with pytest.raises(TypeError, match="did you mean timeout"):
            async for _ in alog.tail(timeot=0):  # type: ignore[arg-type]
                pass
        await alog.close()

    asyncio.run(calls())


def test_a_keyword_like_no_other_lists_those_there_are(log: Log) -> None:
    names = "start, stop, since, until, isolation, on_damage, skipped, where, key, value, on_undecodable, "
    names += "schema, schemas, registry, subject, message, framing"
    with pytest.raises(TypeError, match=rf"takes no keyword 'xyz': it takes {names}$"):
        log.records(xyz=1)  # type: ignore[arg-type]
    assert closest_match("xyz", ("start",)) is None
    assert "'b'" in str(unknown_keyword("call", {"b": 1}, ("start", "stop")))


@pytest.mark.parametrize("owner", [Log, Writer])
def test_what_is_listed_is_what_the_call_takes(owner: type, log: Log) -> None:
    """The names in the error are those of the signature, for each method that has keywords of its own."""
    target: Any = log if owner is Log else log.writer()
    checked = 0
    for name, method in inspect.getmembers(owner, lambda one: inspect.isfunction(inspect.unwrap(one))):
        parameters = inspect.signature(method).parameters
        if "unknown" not in parameters:
            continue
        known = [one for one in parameters if one not in ("self", "log", "unknown")]
        one_argument = ("append", "append_bytes", "append_arrow", "replicate", "offset_for_time", "cursor")
        one_argument += ("get", "get_many", "get_table", "history", "queue")
        positional = 1 if name in one_argument else 0
        with pytest.raises(TypeError) as error:
            getattr(target, name)(*[b""] * positional, _=1)
        assert str(error.value).endswith("takes " + ", ".join(known)), name
        checked += 1
    assert checked >= (10 if owner is Log else 1)
    if owner is Writer:
        target.close()


def test_settings_of_a_topic_that_are_given_as_keywords(tmp_path: Path) -> None:
    """For keywords of `kafkalog.open` the error says where they go."""
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        for call in (dirs.create_topic, dirs.alter_topic):
            with pytest.raises(TypeError, match=r"settings=\{'retention_ms': \.\.\.\}"):
                call("orders", retention_ms=1000)  # type: ignore[operator]
            with pytest.raises(TypeError, match="did you mean partitions"):
                call("orders", partition=2)  # type: ignore[operator]
