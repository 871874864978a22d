"""A mirror of a real broker where something fails: the mirror is killed, the source goes away and has lost records."""

import shutil
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.commands import started
from tests.interop.broker import QUIET, Broker
from tests.interop.mirrors import (
    is_same,
    keys_of,
    kill,
    mirrored,
    mirroring,
    named,
    records_of,
    served,
    served_from,
    topics_on,
    until,
    write,
)
from tests.interop.reference import Reference
from tests.ports import free_ports

TOPICS = {"plain": {"segment.bytes": "1048576"}, "other": {}}
KEYS = keys_of(*TOPICS)


def test_a_mirror_that_is_killed_goes_on_where_it_was(tmp_path: Path, reference: Reference) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    with Broker(reference, tmp_path / "work", source, QUIET) as broker:
        topics_on(broker, TOPICS)
        for number in range(3):
            before = copied(copy)
            mirror = started("mirror", "--from", broker.bootstrap, "-d", copy, *named(TOPICS))
            write(broker.bootstrap, range(number * 4, number * 4 + 4), *TOPICS)
            until(lambda size=before: copied(copy) > size, mirror)
            kill(mirror)
            write(broker.bootstrap, [100 + number], *TOPICS)
        with mirroring(broker.bootstrap, copy, *TOPICS) as mirror:
            write(broker.bootstrap, [200], *TOPICS)
            until(lambda: is_same(source, copy, KEYS), mirror)
        wanted = served(broker, KEYS)
    assert served_from(reference, tmp_path / "standby", copy, KEYS) == wanted


def copied(copy: Path) -> int:
    return sum(len(records_of(copy, key)) for key in KEYS)


def test_a_source_that_goes_away_and_comes_back_with_less(tmp_path: Path, reference: Reference) -> None:
    """The mirror runs all the time: over a stop, a kill, lost records, and a directory that was put back as a whole."""
    source, copy, older = tmp_path / "source", tmp_path / "copy", tmp_path / "older"
    ports = free_ports(2)

    def running() -> Broker:
        return Broker(reference, tmp_path / "work", source, QUIET, ports=ports)

    with ExitStack() as stack:
        with running() as broker:
            topics_on(broker, TOPICS)
            write(broker.bootstrap, range(3), *TOPICS)
            mirror = stack.enter_context(mirroring(broker.bootstrap, copy, *TOPICS))
            until(lambda: is_same(source, copy, KEYS), mirror)
        shutil.copytree(source, older)
        with running() as broker:
            write(broker.bootstrap, range(3, 6), *TOPICS)
            until(lambda: is_same(source, copy, KEYS), mirror)
            broker.kill()
        with running() as broker:
            write(broker.bootstrap, range(6, 9), *TOPICS)
            until(lambda: is_same(source, copy, KEYS), mirror)
        lost = records_of(copy, KEYS[0])
        for key in KEYS:
            shutil.rmtree(source / f"{key}")
            shutil.copytree(older / f"{key}", source / f"{key}")
        with running() as broker:  # its leaders have a newer epoch, which shows where the records end
            until(lambda: is_same(source, copy, KEYS), mirror)
            assert len(records_of(copy, KEYS[0])) < len(lost)
            write(broker.bootstrap, range(20, 22), *TOPICS)
            until(lambda: is_same(source, copy, KEYS), mirror)
        shutil.rmtree(source)
        shutil.copytree(older, source)
        with running() as broker:  # and here an older one, so that only the logs' ends are known
            until(lambda: is_same(source, copy, KEYS), mirror)
            write(broker.bootstrap, range(30, 32), *TOPICS)
            until(lambda: is_same(source, copy, KEYS), mirror)
            wanted = served(broker, KEYS)
    assert served_from(reference, tmp_path / "standby", copy, KEYS) == wanted


def test_a_topic_that_is_deleted_and_made_again_is_another_one(tmp_path: Path, reference: Reference) -> None:
    """The copy stays as it is, the other topics go on, and a mirror that is started then says what is wrong."""
    source, copy = tmp_path / "source", tmp_path / "copy"
    others = keys_of("other")
    with Broker(reference, tmp_path / "work", source, QUIET) as broker:
        topics_on(broker, TOPICS)
        write(broker.bootstrap, range(2), *TOPICS)
        with mirroring(broker.bootstrap, copy, *TOPICS) as mirror:
            until(lambda: is_same(source, copy, KEYS), mirror)
            before = {key: records_of(copy, key) for key in KEYS}
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.delete_topics(["plain"])["plain"].result(60)
            write(broker.bootstrap, [2], "other")
            until(lambda: is_same(source, copy, others), mirror)
            until(lambda: not any((source / f"{key}").exists() for key in keys_of("plain")), mirror)
            topics_on(broker, {"plain": {}})
            write(broker.bootstrap, range(2, 5), *TOPICS)
            until(lambda: is_same(source, copy, others), mirror)
            assert all(records_of(copy, key) == before[key] for key in keys_of("plain"))
        status, said = mirrored(broker.bootstrap, copy, *TOPICS)
        assert status != 0 and "was deleted and created again" in said and "Traceback" not in said
        assert all(records_of(copy, key) == before[key] for key in keys_of("plain"))
        assert mirrored(broker.bootstrap, copy, "other")[0] == 0
