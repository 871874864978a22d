"""Each command that a hint or report of the package names, run where it comes up: it does what the hint says."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.backup import create_backup
from kafkalog.cli.main import run
from kafkalog.cursors.store import CursorStore
from kafkalog.errors import (
    CorruptCheckpoint,
    CorruptRecord,
    IllegalState,
    KafkalogError,
    OffsetOutOfRange,
    StorageError,
)
from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.manager.topics import TopicStore
from kafkalog.storage.recovery.kept import list_kept
from kafkalog.util.fileio import OS
from tests import commands as processes
from tests.backup.logs import fill, offsets
from tests.backup.test_create import Later
from tests.broker_directory import format_directory
from tests.damage.test_command_line import exported
from tests.manager.metadata_files import topic_values, write_metadata
from tests.storage.test_kept import RECORDS, make, make_damaged, mark_unclean, positions
from tests.tools import test_hints
from tests.tools.hint_sources import named_commands, texts


class Shell:
    """Runs commands of `kafkalog` in this process; a status other than the expected one fails."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path, status: int = 0) -> str:
        """Return the command's stdout and stderr."""
        self._capsys.readouterr()
        found = run([os.fspath(one) for one in arguments])
        printed = self._capsys.readouterr()
        assert found == status, printed
        return printed.out + printed.err


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def hint_of(error: pytest.ExceptionInfo[KafkalogError]) -> str:
    """The error in words, with its hint."""
    return str(error.value)


def write_damaged(data: Path) -> frozenset[int]:
    """A data directory with one damaged batch; its sound offsets."""
    test_hints.write_two_segments(data)
    case = test_hints.CASES["crc"]
    case.spoil(data)
    return test_hints.ALL - case.lost


def damaged_directory(shell: Shell, at: Path) -> None:
    sound = write_damaged(at / "data")
    said = shell("export", "-d", at / "data", at / "copy", "--format", "kafka-dir", status=1)
    assert named_commands(said) == {"export --format jsonl --on-damage skip", "repair --excise --apply", "backup"}
    shell("export", "-d", at / "data", "--format", "jsonl", "--on-damage", "skip", at / "lines", status=1)
    assert {offset for offset, _ in exported(at / "lines", "jsonl")} == sound
    shell("backup", "-d", at / "data", at / "backups", status=1)
    (copy,) = (at / "backups").glob(f"*/dir0/t-0/{test_hints.FIRST}")
    assert copy.read_bytes() == (at / "data" / "t-0" / test_hints.FIRST).read_bytes()


def damaged_export(shell: Shell, at: Path) -> None:
    sound = write_damaged(at / "data")
    shell("export", "-d", at / "data", at / "out", "--format", "jsonl", status=1)
    said = shell("export", "-d", at / "data", at / "out", "--format", "jsonl", "--resume", status=1)
    assert "export --resume --on-damage skip" in named_commands(said)
    shell("export", "--resume", "--on-damage", "skip", "-d", at / "data", at / "out", "--format", "jsonl", status=1)
    assert [offset for offset, _ in exported(at / "out", "jsonl")] == sorted(sound)


def damaged_manifest(shell: Shell, at: Path) -> None:
    clock = Later()
    fill(at / "data", records=20)
    first = create_backup(at / "data", at / "backups", clock=clock)
    clock.hours += 1
    second = create_backup(at / "data", at / "backups", clock=clock)
    (manifest,) = Path(second.path).glob("kafkalog.backup.json")
    manifest.chmod(0o600)
    manifest.write_bytes(b"{")
    said = shell("restore", at / "backups", "-d", at / "restored", status=1)
    assert "backup list" in named_commands(said)
    name = Path(first.path).name
    assert f"\n{name}  " in "\n" + shell("backup", "list", at / "backups", status=1)
    assert f"\n{name}\n" in "\n" + shell("backup", "verify", "--all", at / "backups", status=1)
    shell("restore", at / "backups", "--id", name, "-d", at / "restored")
    assert offsets(at / "restored" / "orders-0") == list(range(20))


def damaged_backup(shell: Shell, at: Path) -> None:
    fill(at / "data", records=200)
    made = create_backup(at / "data", at / "backups")
    broken = [*Path(made.path).glob("dir0/orders-0/*.log")][:2]
    for path in broken:
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:-1])
    said = shell("restore", at / "backups", "-d", at / "restored", status=1)
    assert "backup verify" in named_commands(said)
    output = shell("backup", "verify", at / "backups", status=1)
    assert all(str(path) in output for path in broken)


def no_backup(shell: Shell, at: Path) -> None:
    fill(at / "data", records=20)
    made = create_backup(at / "data", at / "backups")
    shell("backup", "delete", at / "backups", Path(made.path).name)
    assert "backup" in named_commands(shell("restore", at / "backups", "-d", at / "restored", status=1))
    shell("backup", "-d", at / "data", at / "backups")
    shell("restore", at / "backups", "-d", at / "restored")


def backup_opened_for_writing(shell: Shell, at: Path) -> None:
    fill(at / "data", records=20)
    made = create_backup(at / "data", at / "backups")
    with pytest.raises(StorageError) as caught:
        kafkalog.open_dirs(Path(made.path) / "dir0", "a")
    assert "restore" in named_commands(hint_of(caught))
    shell("restore", at / "backups", "-d", at / "restored")
    with kafkalog.open_dirs(at / "restored", "a") as dirs:
        assert dirs["orders", 0].end_offset == 20


def no_terminal(shell: Shell, at: Path) -> None:
    fill(at / "data", records=20)
    assert {"stats", "dump"} <= named_commands(shell("browse", "-d", at / "data", status=1))
    assert "orders" in shell("stats", "-d", at / "data")
    (segment, *_) = sorted((at / "data").glob("orders-0/*.log"))
    assert "value 0" in shell("dump", "--print-data-log", segment)


def no_topic_named(shell: Shell, at: Path) -> None:
    fill(at / "data", records=20)
    assert "topics list" in named_commands(shell("consume", "-d", at / "data", status=2))
    assert shell("topics", "list", "-d", at / "data").split() == ["orders"]


def partition_of_missing_topic(shell: Shell, at: Path) -> None:
    produce = ("produce", "-d", at / "data", "-t", "new", "-p", "3")
    said = processes.kafkalog(*produce, stdin=b"v\n")
    assert "topics create --partitions N" in named_commands(said.stderr.decode())
    shell("topics", "create", "--partitions", "4", "-d", at / "data", "-t", "new")
    processes.ok(*produce, stdin=b"v\n")


def partition_of_smaller_topic(shell: Shell, at: Path) -> None:
    shell("topics", "create", "-d", at / "data", "-t", "small")
    produce = ("produce", "-d", at / "data", "-t", "small", "-p", "3")
    said = processes.kafkalog(*produce, stdin=b"v\n")
    assert "topics alter --partitions N" in named_commands(said.stderr.decode())
    shell("topics", "alter", "--partitions", "4", "-d", at / "data", "-t", "small")
    processes.ok(*produce, stdin=b"v\n")


def line_that_is_no_record(shell: Shell, at: Path) -> None:
    fill(at / "data", records=20)
    said = processes.kafkalog("produce", "-J", "-d", at / "copy", "-t", "orders", stdin=b"v\n")
    assert "consume -J" in named_commands(said.stderr.decode())
    lines = shell("consume", "-J", "-d", at / "data", "-t", "orders", "-q")
    processes.ok("produce", "-J", "-d", at / "copy", "-t", "orders", "-p", "0", stdin=lines.encode())
    assert offsets(at / "copy" / "orders-0") == list(range(20))


def directory_among_files(shell: Shell, at: Path) -> None:
    fill(at / "data", records=20)
    shell("export", "-d", at / "data", at / "copy", "--format", "kafka-dir")
    shell("export", "-d", at / "data", at / "lines", "--format", "jsonl")
    said = shell("import", "-d", at / "into", at / "lines", at / "copy", status=2)
    assert "import" in named_commands(said)
    shell("import", "-d", at / "into", at / "copy")
    assert offsets(at / "into" / "orders-0") == list(range(20))


def plot_without_matplotlib(shell: Shell, at: Path) -> None:
    fill(at / "data", records=20)
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import kafkalog; from kafkalog.errors import MissingPackage\n"
        "try: kafkalog.open(sys.argv[1]).plot()\n"
        "except MissingPackage as error: print(error)\n"
        "from kafkalog.cli.main import run; sys.exit(run(['report', '-d', sys.argv[2], '-o', sys.argv[3]]))\n"
    )
    arguments = [str(at / "data" / "orders-0"), str(at / "data"), str(at / "page.html")]
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, env=processes.environment()
    )
    assert done.returncode == 0 and "report" in named_commands(done.stdout), done.stderr
    assert "<svg" in (at / "page.html").read_text()


def torn_metadata(shell: Shell, at: Path) -> None:
    write_metadata(at / "data", topic_values("t", {"retention.ms": "5"}))
    with (at / "data" / METADATA_DIRECTORY / test_hints.FIRST).open("ab") as log:
        log.write(b"torn")
    with pytest.raises(CorruptRecord) as caught:
        kafkalog.open_dirs(at / "data", "a")
    assert named_commands(hint_of(caught)) == {"verify", "repair --apply"}
    (path,) = {word for word in hint_of(caught).split() if METADATA_DIRECTORY in word and not word.endswith(",")}
    assert f"{METADATA_DIRECTORY}/{test_hints.FIRST}" in shell("verify", at / "data", status=1)
    shell("repair", "--apply", path.rstrip("`"))
    kafkalog.open_dirs(at / "data", "a").close()
    assert read_known_topics([str(at / "data")]).settings_of("t") == {"retention.ms": "5"}


def write_cut_log(at: Path) -> Path:
    """A log that was not closed well, with damage in its second segment and sound batches behind it."""
    path = make(at / "data")
    second = sorted(path.glob("*.log"))[1]
    content = bytearray(second.read_bytes())
    content[positions(second)[3] + 70] ^= 1
    second.write_bytes(content)
    mark_unclean(path)
    return path


def records_that_were_kept(shell: Shell, at: Path) -> None:
    path = write_cut_log(at)
    with pytest.raises(CorruptRecord) as caught:
        kafkalog.open(path, "a", on_damage="refuse")
    assert "kept restore" in named_commands(hint_of(caught))
    with kafkalog.open(path, "a", on_damage="recover") as log:
        end = log.end_offset
    shell("kept", "restore", at / "data", "--to", at / "back")
    with kafkalog.open(at / "back" / "orders-0") as log:
        assert [record.offset for record in log.records()] == [*range(end + 3, RECORDS)]


def interrupted_delete(shell: Shell, at: Path) -> None:
    shell("topics", "create", "-d", at / "data", "-t", "t")
    TopicStore(at / "data").mark_deleted(("t",))
    with pytest.raises(IllegalState) as caught:
        kafkalog.open(at / "data" / "t-0", "a")
    assert "topics delete --apply" in named_commands(hint_of(caught))
    shell("topics", "delete", "--apply", "-d", at / "data", "-t", "t")
    with kafkalog.open(at / "data" / "t-0", "a") as log:
        log.append(b"new")


def damaged_manifest_of_kept(shell: Shell, at: Path) -> None:
    path = write_cut_log(at)
    kafkalog.open(path, "a").close()
    (kept,) = list_kept(str(path), OS)
    (manifest,) = Path(kept.path).glob("*.json")
    manifest.write_bytes(b"{")
    assert "consume --on-damage skip" in named_commands(shell("kept", "list", at / "data", status=1))
    (at / "copy" / "t-0").mkdir(parents=True)
    for file in Path(kept.path).glob("*.log*"):
        shutil.copy(file, at / "copy" / "t-0" / (file.name.partition(".log")[0] + ".log"))
    given = ("-q", "-d", at / "copy", "-t", "t", "-o", "beginning", "-f", "%o\n")
    said = shell("consume", "--on-damage", "skip", *given, status=1)
    assert [int(line) for line in said.splitlines() if line.isdigit()] == list(range(kept.offset + 3, RECORDS))


def damaged_cursor(shell: Shell, at: Path) -> None:
    fill(at / "data", records=20)
    log = kafkalog.open(at / "data" / "orders-0")
    log.cursor("c", store=at / "cursors").close()
    store = CursorStore(at / "cursors")
    (path,) = (at / "cursors").glob("**/c.cursor")
    path.write_bytes(b"{")
    with pytest.raises(CorruptCheckpoint) as caught:
        log.cursor("c", store=at / "cursors")
    assert "offsets reset --execute" in named_commands(hint_of(caught))
    given = ("-d", at / "data", "-t", "orders", "-G", "c", "--cursors", at / "cursors")
    shell("offsets", "reset", "--execute", "--to-offset", "7", *given)
    state = store.read(str(at / "data" / "orders-0"), "c")
    assert state is not None and state.position == 7
    log.close()


def cursor_that_lost_its_place(shell: Shell, at: Path) -> None:
    fill(at / "data", records=200)
    with kafkalog.open(at / "data" / "orders-0", "a") as log:
        log.cursor("c", store=at / "cursors", start="earliest").close()
        log.delete_before(100)
    with kafkalog.open(at / "data" / "orders-0") as log:
        with pytest.raises(OffsetOutOfRange) as caught:
            log.cursor("c", store=at / "cursors")
        assert "offsets reset --execute" in named_commands(hint_of(caught))
        given = ("-d", at / "data", "-t", "orders", "-G", "c", "--cursors", at / "cursors")
        shell("offsets", "reset", "--execute", "--to-earliest", *given)
        with log.cursor("c", store=at / "cursors") as cursor:
            assert next(iter(cursor)).offset == 100


def unknown_cursor(shell: Shell, at: Path) -> None:
    fill(at / "data", records=20)
    with kafkalog.open(at / "data" / "orders-0") as log:
        log.cursor("known", store=at / "cursors").close()
    given = ("-d", at / "data", "--cursors", at / "cursors")
    assert "offsets groups" in named_commands(shell("offsets", "delete", "-G", "other", *given, status=1))
    assert "known" in shell("offsets", "groups", *given)


def topic_to_overwrite(shell: Shell, at: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from kafkalog.spark.sink import refuse_overwrite

    assert "topics delete --apply" in named_commands(str(refuse_overwrite()))
    fill(at / "data", records=20)
    shell("topics", "delete", "--apply", "-d", at / "data", "-t", "orders")
    assert not [*(at / "data").glob("orders-0")]


def handover_to_take_back(shell: Shell, at: Path) -> None:
    shell("topics", "create", "-d", at / "data", "-t", "orders", "--config", "retention.ms=-1")
    format_directory(at / "data")
    said = shell("handover", "-d", at / "data", "--apply")
    assert "handover --undo" in named_commands(said)
    assert "undid the handover of 1 topic" in shell("handover", "--undo", "-d", at / "data")


def write_many_keys(data: Path) -> None:
    """A log of `orders` with more different keys than are counted by `stats --by`."""
    with kafkalog.open(data / "orders-0", "a") as log:
        for first in range(0, 100_001, 20_000):
            log.append([(b"k%d" % n, b"v") for n in range(first, first + 20_000)])
        log.append([(b"k7", b"v")])


def too_many_values(shell: Shell, at: Path) -> None:
    write_many_keys(at / "data")
    assert "sql" in named_commands(shell("stats", "-d", at / "data", "--by", "key", status=2))
    query = "SELECT decode(key), count(*) FROM orders GROUP BY ALL ORDER BY 2 DESC LIMIT 1"
    assert shell("sql", "--csv", "-d", at / "data", query).split()[-1] == "k7,2"


def records_that_recovery_kept(shell: Shell, at: Path) -> None:
    (at / "data").mkdir()
    make_damaged(at / "data")
    kafkalog.open(at / "data" / "orders-0", "a").close()
    words = ("redact", "-d", at / "data", "-t", "orders", "--offsets", "0:0", "--apply")
    assert "redact --remove-kept" in named_commands(shell(*words))
    shell(*words, "--remove-kept")
    assert not (at / "data" / "orders-0" / "kafkalog-kept").exists()


def damaged_backup_to_redact(shell: Shell, at: Path) -> None:
    write_damaged(at / "data")
    shell("backup", "-d", at / "data", at / "backups", status=1)
    words = ("-t", "t", "--offsets", "0:0", "--with", "empty", "--apply")
    said = shell("redact", "--backups", at / "backups", *words, status=1)
    assert {"repair --excise --apply", "redact"} <= named_commands(said)
    shell("restore", at / "backups", "-d", at / "restored")
    shell("repair", "--excise", "--apply", "-d", at / "restored")
    shell("redact", "-d", at / "restored", *words, "--remove-kept")
    shutil.rmtree(at / "backups")
    with kafkalog.open(at / "restored" / "t-0") as log:
        assert not log[0].value


Scenario = Callable[[Shell, Path], None]
COMMANDS: dict[str, tuple[Scenario, ...]] = {
    "export --format jsonl --on-damage skip": (damaged_directory,),
    "export --resume --on-damage skip": (damaged_export,),
    "backup": (damaged_directory, no_backup),
    "backup list": (damaged_manifest,),
    "backup verify": (damaged_backup,),
    "restore": (backup_opened_for_writing,),
    "stats": (no_terminal,),
    "sql": (too_many_values,),
    "dump": (no_terminal,),
    "consume --on-damage skip": (damaged_manifest_of_kept,),
    "topics list": (no_topic_named,),
    "topics create --partitions N": (partition_of_missing_topic,),
    "topics alter --partitions N": (partition_of_smaller_topic,),
    "topics delete --apply": (topic_to_overwrite, interrupted_delete),
    "consume -J": (line_that_is_no_record,),
    "import": (directory_among_files,),
    "report": (plot_without_matplotlib,),
    "verify": (torn_metadata,),
    "repair --apply": (torn_metadata,),
    "kept restore": (records_that_were_kept,),
    "offsets reset --execute": (damaged_cursor, cursor_that_lost_its_place),
    "offsets groups": (unknown_cursor,),
    "handover --undo": (handover_to_take_back,),
    "redact": (damaged_backup_to_redact,),
    "redact --remove-kept": (records_that_recovery_kept,),
}
"""The commands that hints name beside those of `test_hints`, with what brings the hint up and then runs the command."""


SCENARIOS = list(dict.fromkeys(one for some in COMMANDS.values() for one in some))


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_command_of_a_hint_does_what_it_says(scenario: Scenario, shell: Shell, tmp_path: Path) -> None:
    scenario(shell, tmp_path)


def test_every_command_that_a_text_names_is_run() -> None:
    named = {command for text in texts() for command in named_commands(text)}
    assert named == COMMANDS.keys() | test_hints.COMMANDS.keys()
