"""Backups of a real broker's directory under load, and a broker on what is restored of them."""

from pathlib import Path

import pytest

from kafkalog.backup import verify_backup
from tests import commands
from tests.backup.load import HASTY, Load, backup, check, check_bytes, check_served, restored, until_at_work
from tests.interop.broker import Broker
from tests.interop.reference import Reference

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
FEW = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}


def test_a_broker_opens_what_was_backed_up_beside_a_broker_under_load(tmp_path: Path, reference: Reference) -> None:
    data, made = tmp_path / "data", []
    data.mkdir()
    with Broker(reference, tmp_path / "work", data, HASTY | FEW) as broker, Load(broker.bootstrap) as load:
        for wanted in (300, 900):
            promised = load.wait(wanted)
            until_at_work(data)
            if made:  # a broker whose old registration is fenced skips the markers of prepared transactions
                load.end_transactions()
            made.append((promised, backup(data, tmp_path / "backups")))
    assert made[-1][1]["linked"], "what an earlier backup has is not copied again"
    for promised, listed in made:
        into = tmp_path / listed["id"]
        manifest = restored(tmp_path / "backups", listed["id"], into)
        check(into, manifest, promised)
        check_bytes(data, into)
    with Broker(reference, tmp_path / "again", into, FEW) as broker:
        check_served(broker.bootstrap, manifest, promised)
        for sign in ("-stray", "corrupt", "Found invalid"):
            assert sign not in broker.log(), sign


def test_a_broker_does_not_start_on_a_backup_itself(
    tmp_path: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with Broker(reference, tmp_path / "work", data, FEW):
        pass
    made = Path(commands.ok("backup", "-q", "-d", data, tmp_path / "backups").decode().partition(": ")[0])
    monkeypatch.setattr(Broker, "_format", lambda broker, properties: None)
    with pytest.raises(RuntimeError, match="did not start"):
        with Broker(reference, tmp_path / "again", made / "dir0", FEW):
            pass
    assert verify_backup(tmp_path / "backups").ok


def test_a_stopped_brokers_directory_comes_back_byte_by_byte(tmp_path: Path, reference: Reference) -> None:
    from tests.backup.logs import files

    data = tmp_path / "data"
    data.mkdir()
    with Broker(reference, tmp_path / "work", data, HASTY | FEW) as broker, Load(broker.bootstrap) as load:
        load.wait(100)
    commands.ok("backup", "-d", data, tmp_path / "backups")
    commands.ok("restore", tmp_path / "backups", "-d", tmp_path / "restored")
    before, after = files(data), files(tmp_path / "restored")
    assert after == {name: content for name, content in before.items() if not name.endswith(".deleted")}
