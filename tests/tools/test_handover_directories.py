"""`handover` to a broker of several data directories, and out of a state in which no broker can start."""

import errno
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import kafkalog
from kafkalog.config.topic import LogConfig
from kafkalog.errors import IllegalArgument, KafkalogError, StorageError
from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY, ClusterMetadata
from kafkalog.manager.topics import TopicStore
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import kraft_batch
from kafkalog.server.txns.records import transactions_batch
from kafkalog.server.txns.states import TransactionState
from kafkalog.server.txns.transaction import Transaction
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.partition_metadata import new_topic_id, read_partition_metadata
from kafkalog.tools.handover.apply import METADATA_LOG
from kafkalog.tools.handover.directories import HandoverOptions, HandoverReport, handover, undo_handover
from kafkalog.tools.handover.journal import JOURNAL_FILE, SAVED_BOOTSTRAP, Journal
from kafkalog.tools.handover.journal import write as write_journal
from kafkalog.tools.handover.node import read_node
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS
from tests.broker_directory import T0, batch, format_directory, write_meta_properties, write_metadata_log
from tests.faults import WRITING_CALLS, FaultFS, each_failure
from tests.handover_cases import content, existing, metadata_of, produced, topic, write


def both(tmp_path: Path, by: str = "4.3") -> list[Path]:
    """Two data directories with a topic in each, formatted: the first is the broker's metadata.log.dir."""
    tmp_path.mkdir(exist_ok=True)
    directories = [tmp_path / "one", tmp_path / "two"]
    for number, path in enumerate(directories):
        write(path, f"t{number}-0", retention_ms=-1)
        format_directory(path, by=by) if by == "4.3" or not number else write_meta_properties(path)
    return directories


def hand_over(directories: list[Path], metadata_dir: Path | None = None) -> HandoverReport:
    report = handover(directories, apply=True, metadata_dir=metadata_dir)
    assert report.ok and handover(directories, metadata_dir=metadata_dir).plan.is_done
    return report


@pytest.mark.parametrize("is_turned", [False, True])
def test_each_file_that_a_broker_could_begin_with_gets_the_topics(tmp_path: Path, is_turned: bool) -> None:
    """Formatted by 4.3, both directories have one, and only server.properties say which is used."""
    directories = both(tmp_path)
    before = [content(path) for path in directories]
    hand_over(directories[::-1] if is_turned else directories)
    for path in directories:
        assert set(metadata_of(path).image.topics) == {"t0", "t1"}
    undo_handover(directories)
    assert [content(path) for path in directories] == before


def test_undo_reverts_an_interrupted_handover_with_the_one_that_completed_it(tmp_path: Path) -> None:
    """Every writing call fails in turn; a file that was written twice gets back what it had before the first."""
    directories = both(tmp_path / "data")
    before = [content(path) for path in directories]
    for nth in each_failure():
        copies = [tmp_path / f"copy{nth}" / path.name for path in directories]
        shutil.copytree(tmp_path / "data", tmp_path / f"copy{nth}")
        fs = FaultFS()
        rule = fs.fail(*WRITING_CALLS, nth=nth, times=1, code=errno.EIO)
        with suppress(KafkalogError, OSError):
            handover(copies, apply=True, fs=fs)
        if not rule.fired:
            break
        hand_over(copies)
        undo_handover(copies)
        assert [content(path) for path in copies] == before, nth


def test_undo_reverts_every_topic_id_of_an_interrupted_handover(tmp_path: Path) -> None:
    data = existing(tmp_path, topic("t", new_topic_id()))
    write(data, "t-1")
    ids = [read_partition_metadata(OS, data / f"t-{number}") for number in (0, 1)]
    adopt = HandoverOptions(adopt=True)
    fs = FaultFS()
    fs.fail("rename", path="t-1/partition.metadata", code=errno.EIO)
    with pytest.raises(StorageError):
        handover([data], apply=True, options=adopt, fs=fs)
    assert [read_partition_metadata(OS, data / f"t-{number}") for number in (0, 1)] != ids
    assert handover([data], apply=True, options=adopt).ok
    undo_handover([data])
    assert [read_partition_metadata(OS, data / f"t-{number}") for number in (0, 1)] == ids


@pytest.mark.parametrize("is_completed", [False, True])
def test_undo_reverts_a_handover_that_wrote_a_part_of_its_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_completed: bool
) -> None:
    """Many topics need several batches of metadata; the broker has not run in between."""
    data = existing(tmp_path, topic("x", new_topic_id()))
    write(data, "u-0", retention_ms=-1)
    before = metadata_of(data)
    monkeypatch.setattr("kafkalog.tools.handover.records.BATCH_BYTES", 1)
    options = HandoverOptions(let_expire=True)
    fs = FaultFS()
    fs.fail("pwrite", "pwritev", path=f"{METADATA_DIRECTORY}/{0:020d}.log", nth=2, code=errno.EIO)
    with pytest.raises(StorageError):
        handover([data], apply=True, options=options, fs=fs)
    assert metadata_of(data).end_offset > before.end_offset
    if is_completed:
        assert handover([data], apply=True, options=options).ok
        assert set(metadata_of(data).image.topics) == {"t", "u", "x"}
    undo_handover([data])
    assert metadata_of(data).end_offset == before.end_offset and set(metadata_of(data).image.topics) == {"x"}


def test_a_file_that_was_left_out_before_gets_the_topics_too(tmp_path: Path) -> None:
    one, two = both(tmp_path)
    hand_over([one])
    assert not handover([one, two]).plan.is_done
    hand_over([two, one])
    assert set(metadata_of(two).image.topics) == set(metadata_of(one).image.topics) == {"t0", "t1"}


@pytest.mark.parametrize("by", ["4.3", "4.4"])
@pytest.mark.parametrize("is_turned", [False, True])
def test_the_directory_that_a_broker_has_used_is_found(tmp_path: Path, by: str, is_turned: bool) -> None:
    directories = both(tmp_path, by)
    write_metadata_log(directories[0])
    before = content(directories[1])
    report = hand_over(directories[::-1] if is_turned else directories)
    assert report.plan.metadata.path == str(directories[0]) and not report.plan.twins
    assert content(directories[1]) == before
    assert set(metadata_of(directories[0]).image.topics) == {"t0", "t1"}


def test_the_directory_that_4_4_formatted_is_found(tmp_path: Path) -> None:
    one, two = both(tmp_path, "4.4")
    assert hand_over([two, one]).plan.metadata.path == str(one)
    undo_handover([two, one])
    assert not metadata_of(one).image.topics


@pytest.mark.parametrize("by", ["4.3", "4.4"])
def test_a_metadata_dir_that_the_broker_does_not_use_is_refused(tmp_path: Path, by: str) -> None:
    """Written there, the topics would become -stray directories at the broker's next start."""
    one, two = both(tmp_path, by)
    if by == "4.3":
        write_metadata_log(one)
    before = [content(path) for path in (one, two)]
    with pytest.raises(IllegalArgument, match="the broker's metadata is in") as caught:
        handover([one, two], apply=True, metadata_dir=two)
    assert str(one) in str(caught.value) and str(two) in str(caught.value)
    assert [content(path) for path in (one, two)] == before
    hand_over([one, two], one)


def test_two_logs_of_metadata_are_refused(tmp_path: Path) -> None:
    one, two = both(tmp_path)
    write_metadata_log(one)
    write_metadata_log(two)
    with pytest.raises(IllegalArgument, match="also has a broker's metadata"):
        handover([one, two])


# Out of a state in which no broker can start


def as_an_earlier_release_did(data: Path, elections: int) -> ClusterMetadata:
    """Records at the beginning of a log that 4.4 had formatted: no metadata.version, so no broker starts on it."""
    metadata = metadata_of(data)
    node_id = read_node([str(data)], OS).node_id
    records = topic("t", TopicStore(data).topics()["t"].topic_id, replicas=(node_id,))
    write_journal(metadata, Journal(0, len(records), "", ("t",), {}), OS)
    log = UnifiedLog.open(metadata.log_path, LogConfig.from_stored(METADATA_LOG))
    log.append_as_follower(batch(records, 0, 0), 0)
    voters = [{"voterId": node_id}]
    for epoch in range(1, 1 + elections):
        change = {"leaderId": node_id, "voters": voters, "grantingVoters": voters}
        made = kraft_batch(
            ControlType.LEADER_CHANGE, change, timestamp=T0, base_offset=log.log_end_offset, leader_epoch=epoch
        )
        log.append_as_follower(made, epoch)
    log.close()
    return metadata_of(data)


@pytest.mark.parametrize("elections", [0, 1, 3])
def test_a_handover_that_no_broker_starts_on_is_noticed_and_taken_back(tmp_path: Path, elections: int) -> None:
    data = tmp_path / "data"
    write(data, "t-0", retention_ms=-1)
    format_directory(data, by="4.4")
    as_an_earlier_release_did(data, elections)
    report = handover([data], apply=True)
    [problem] = report.plan.problems
    assert "no broker can start" in problem.what and "--undo" in problem.hint
    undo_handover([data])
    assert metadata_of(data).is_fresh and metadata_of(data).end_offset == 0
    hand_over([data])
    assert set(metadata_of(data).image.topics) == {"t"}
    assert not (data / METADATA_DIRECTORY / JOURNAL_FILE).exists() and (data / SAVED_BOOTSTRAP).exists()


# Transactions that are open

STATES = {"ongoing": 1, "prepare commit": 2, "prepare abort": 3, "complete commit": 4, "empty": 0}


def write_transaction(data: Path, producer_id: int, state: int, *partitions: tuple[str, int]) -> None:
    """The state of a transaction, as our server's coordinator and a broker's keep it."""
    transaction = Transaction(
        f"id-{producer_id}", producer_id, 0, 60_000, TransactionState(state),
        frozenset(TopicPartition(*one) for one in partitions), T0, T0,
    )  # fmt: skip
    with kafkalog.open(data / "__transaction_state-0", "a", cleanup_policy="compact") as log:
        log.append_bytes(transactions_batch([(transaction.transactional_id, transaction)], T0).data)


@pytest.mark.parametrize("state", STATES)
def test_only_transactions_that_no_coordinator_ends_are_noted(tmp_path: Path, state: str) -> None:
    data = tmp_path / "data"
    with kafkalog.open(data / "t-0", "a", retention_ms=-1) as log:
        log.append([b"before"])
        log.append_bytes(produced(7, transactional=True))
        log.append_bytes(produced(8, transactional=True))
    write_transaction(data, 7, 1, ("t", 0))
    write_transaction(data, 7, STATES[state], ("t", 0))
    write_transaction(data, 8, 1, ("t", 1), ("other", 0))  # open, but not here
    format_directory(data)
    notes = [note for note in handover([data]).plan.notes if "open transaction" in note]
    is_ended = state in ("ongoing", "prepare commit", "prepare abort")
    assert [note.split(" on, ")[0] for note in notes] == [
        f"t-0 has an open transaction from offset {offset}" for offset in ([2] if is_ended else [1, 2])
    ]
    assert all("--start-offset" in note for note in notes)


def test_transactions_of_a_coordinator_that_the_broker_does_not_know_are_noted(tmp_path: Path) -> None:
    """Only the topic `t` is handed over: the broker would not load what ends its transaction."""
    data = tmp_path / "data"
    with kafkalog.open(data / "t-0", "a", retention_ms=-1) as log:
        log.append_bytes(produced(7, transactional=True))
    write_transaction(data, 7, 1, ("t", 0))
    format_directory(data)
    named = HandoverOptions(("t",))
    assert any("open transaction" in note for note in handover([data], options=named).plan.notes)
    assert handover([data], apply=True, options=HandoverOptions(("__transaction_state",))).ok
    assert not any("open transaction" in note for note in handover([data], options=named).plan.notes)
