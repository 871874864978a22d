"""Backups beside a writer, and beside our server under load: consistent, and served again when restored."""

import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog
from kafkalog.backup import create_backup, list_backups, restore_backup, verify_backup
from kafkalog.testing import kafka_server
from kafkalog.tools.verify.directories import verify
from tests.backup.load import HASTY, Load, backup, check, check_bytes, check_served, restored, until_at_work
from tests.backup.logs import offsets

WRITER = """
import sys
import kafkalog
with kafkalog.open_dirs(sys.argv[1], "a") as dirs:
    dirs.create_topic("orders", 1, {"segment.bytes": 20000, "index.interval.bytes": 300})
    log, n = dirs["orders", 0], 0
    while True:
        log.append([(b"key", b"value %d" % m) for m in range(n, n + 5)])
        n += 5
        if n % 100 == 0:
            print(n, flush=True)
"""


def test_beside_a_writer_in_another_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "data")], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        try:
            acknowledged: list[int] = []
            done = end = 0
            for _ in range(4):
                while done < end + 1500:  # a busy machine has lines in the pipe that are older than the last backup
                    done = int(writer.stdout.readline())
                acknowledged.append(done)
                create_backup(tmp_path / "data", tmp_path / "backups")
                with kafkalog.open(tmp_path / "data" / "orders-0") as log:
                    end = log.end_offset
        finally:
            writer.kill()
    ends = []
    for number, manifest in enumerate(list_backups(tmp_path / "backups")):
        assert verify_backup(tmp_path / "backups", manifest.id, deep=True).ok
        place = tmp_path / f"restored-{number}"
        restore_backup(tmp_path / "backups", place, manifest.id)
        assert verify(place, deep=True).ok
        found = offsets(place / "orders-0")
        assert found == list(range(len(found))) and len(found) >= acknowledged[number]
        ends.append(len(found))
        with kafkalog.open_dirs(place, "a") as dirs:
            assert dirs["orders", 0].end_offset == len(found), "nothing is cut when it is recovered"
    assert ends == sorted(set(ends))


def test_beside_our_server_under_load(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
    data, made = tmp_path / "data", []
    with kafka_server(directory=data, settings=HASTY) as server, Load(server.bootstrap) as load:
        for wanted in (200, 500, 900):
            promised = load.wait(wanted)
            until_at_work(data)
            made.append((promised, backup(data, tmp_path / "backups")))
    assert all(acknowledged["linked"] for _, acknowledged in made[1:]), "what an earlier backup has is not copied again"
    for promised, acknowledged in made:
        into = tmp_path / acknowledged["id"]
        manifest = restored(tmp_path / "backups", acknowledged["id"], into)
        check(into, manifest, promised)
        check_bytes(data, into)
        with kafka_server(directory=into) as server:
            check_served(server.bootstrap, manifest, promised)
