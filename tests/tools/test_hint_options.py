"""Each flag, setting, option and name in a hint exists, and each flag that a hint of a command gives mends the call."""

import importlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.cli.main import build
from kafkalog.config.broker import BROKER_TABLE
from kafkalog.config.keys import Table
from kafkalog.config.topic import TOPIC_TABLE
from kafkalog.errors import KafkalogError, UnknownConfig
from kafkalog.server.settings.table import SERVER_TABLE
from kafkalog.spark.option_table import SINK_OPTIONS, SOURCE_OPTIONS
from tests import commands as processes
from tests.backup.logs import fill, offsets
from tests.exchange.damaged_groups import spoilt_groups
from tests.tools.hint_sources import commands, hints, texts
from tests.tools.test_hint_commands import Shell, shell, write_many_keys
from tests.tools.test_hint_commands import write_cut_log as write_cut_log

__all__ = ["shell"]

FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z-]+|-[A-Za-z]\b)(?![\w-])")
SETTING = re.compile(r"(?<![\w./@'{-])[a-z]+(?:\.[a-z]+)+(?![\w./*(}-])")
TABLES = (TOPIC_TABLE, BROKER_TABLE, SERVER_TABLE)
OF_OTHER_TOOLS = {"--cluster-id", "--config", "--delete", "--force-reinstall", "--reset-offsets"}
"""Flags of Kafka's own commands and of pip."""
OF_OTHER_FILES = {
    "log.dirs", "meta.properties", "metadata.log.dir", "sasl.jaas.config", "server.properties", "spark.driver.memory",
    "auto.offset.reset", "log.scan", "value.country", "value.order.total", "x.desc", "x.proto",
}  # fmt: skip
"""Settings of a broker, of a client and of Spark, names of files, a path into values, a method."""


def test_flags_in_hints_are_flags_of_a_command() -> None:
    known = {name for _, one in commands(build()) for option in one.params for name in option.opts}
    named = {flag for hint in hints() for flag in FLAG.findall(hint)} - OF_OTHER_TOOLS
    assert named <= known | {"-N", "-n"}, sorted(named - known)
    assert named >= {"--resume", "--offsets", "--on-damage", "--excise"}


def test_texts_have_their_commands_in_backquotes() -> None:
    words = "|".join({words[0] for words, _ in commands(build())})
    bare = re.compile(rf"(?<![`\w/.])kafkalog ({words})\b(?! ?=)")
    assert {text for text in texts() if bare.search(text)} == {"kafkalog backup"}  # what its manifest begins with


def test_settings_in_hints_are_settings() -> None:
    known = {key.name for table in TABLES for key in table.keys}
    plain = (re.sub(r"\{[^{}]*\}", "", hint) for hint in hints())
    named = {name for hint in plain for name in SETTING.findall(hint)} - OF_OTHER_FILES
    unknown = {name for name in named if name not in known and not _is_importable(name)}
    assert not unknown and named >= {"max.message.bytes", "cleanup.policy"}


def _is_importable(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        return False


def test_options_in_hints_of_spark_are_options() -> None:
    known = {option.name for option in (*SOURCE_OPTIONS, *SINK_OPTIONS)}
    texts = (*hints("spark"), *hints("landing"))
    named = {name for hint in texts for name in re.findall(r"\b[a-z]+[A-Z][A-Za-z]+\b", hint)}
    assert named <= known and named >= {"failOnDataLoss", "onDamage", "lockWait"}


@pytest.mark.parametrize("table", TABLES, ids=["topic", "broker", "server"])
def test_list_of_settings_that_a_hint_names_has_them_all(table: Table) -> None:
    with pytest.raises(UnknownConfig) as caught:
        table.find("zzzz")
    (name,) = re.findall(r"`(kafkalog[\w.]+)` lists them all", str(caught.value))
    module, _, attribute = name.rpartition(".")
    assert {key.name for key in getattr(importlib.import_module(module), attribute)} == {key.name for key in table.keys}


MOVED = ("kafkalog.topics.json", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint")


@pytest.mark.parametrize("name", MOVED)
def test_file_that_a_hint_says_to_move_away_is_not_needed(tmp_path: Path, name: str) -> None:
    fill(tmp_path / "data", records=20)
    file = tmp_path / "data" / name
    file.write_bytes(b"{")
    with pytest.raises(KafkalogError) as caught, kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs["orders", 0].append(b"v")
    said = str(caught.value)
    assert said.count("Hint: ") == 1 and "away" in said and caught.value.path == str(file)
    file.rename(tmp_path / "moved")
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        assert not dirs.problems and [record.offset for record in dirs["orders", 0]] == list(range(20))


def test_repair_of_a_malformed_file_of_epochs_keeps_the_epochs(tmp_path: Path) -> None:
    fill(tmp_path / "data", records=20)
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.replicate(encode_batch([b"v"], timestamp=1, base_offset=20, leader_epoch=3))
    file = tmp_path / "data" / "orders-0" / "leader-epoch-checkpoint"
    file.write_bytes(b"{")
    with pytest.raises(KafkalogError) as caught:
        kafkalog.open(tmp_path / "data" / "orders-0", "a")
    assert "`kafkalog repair --checkpoints --apply`" in str(caught.value) and caught.value.path == str(file)
    processes.ok("repair", "--checkpoints", "--apply", tmp_path / "data")
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        log.append(b"v")
        assert [batch.header.leader_epoch for batch in log.batches(20)] == [3, 3]


# Flags, run


def export_again(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=20)
    export = ("export", "-d", at / "data", at / "out", "--format", "jsonl")
    shell(*export)
    yield shell(*export, status=2)
    shell(*export, "--resume")


def redact_without_settings(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=20)
    (at / "data" / "kafkalog.topics.json").unlink()
    redact = ("redact", "-d", at / "data", "-t", "orders", "--offsets", "0:3", "--apply")
    yield shell(*redact, status=2)
    shell(*redact, "--with", "empty")


def redact_keys_of_a_compacted_topic(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=20)
    shell("topics", "alter", "-d", at / "data", "-t", "orders", "-c", "cleanup.policy=compact")
    redact = ("redact", "-d", at / "data", "-t", "orders", "--offsets", "0:3", "--apply")
    yield shell(*redact, "--erase-key", status=2)
    shell(*redact)


def export_behind_retention(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=20)
    given = ("export", "-d", at / "data", "-t", "orders", "-p", "0", "--format", "jsonl", at / "out")
    shell(*given)
    with kafkalog.open(at / "data" / "orders-0", "a") as log:
        for _ in range(3):
            log.append([b"more"])
        log.flush()
        log.delete_before(22)
    yield shell(*given, "--resume", status=1)
    shell(*given, "--resume", "-o", "beginning")
    assert len(list((at / "out" / "topic=orders").iterdir())) == 2


def import_again(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=20)
    shell("export", "-d", at / "data", at / "out", "--format", "jsonl")
    again = ("import", "-d", at / "into", at / "out", "--offsets", "keep")
    shell(*again)
    yield shell(*again, status=2)
    shell(*again, "--resume")
    assert offsets(at / "into" / "orders-0") == list(range(20))
    shell(*again[:-1], "new")
    assert "40" in shell("topics", "describe", "-d", at / "into", "-t", "orders")


def import_without_offsets(shell: Shell, at: Path) -> Iterator[str]:
    at.joinpath("rows.jsonl").write_text('{"payload": "x"}\n')
    yield shell("import", "-d", at / "into", at / "rows.jsonl", "-t", "t", "--offsets", "keep", status=2)
    shell("import", "-d", at / "into", at / "rows.jsonl", "-t", "t", "--offsets", "new")


def import_without_topic(shell: Shell, at: Path) -> Iterator[str]:
    pyarrow.parquet.write_table(pyarrow.table({"value": [b"x"]}), at / "rows.parquet")
    yield shell("import", "-d", at / "into", at / "rows.parquet", status=2)
    shell("import", "-d", at / "into", at / "rows.parquet", "-t", "t")


def import_with_columns_of_lines(shell: Shell, at: Path) -> Iterator[str]:
    at.joinpath("rows.jsonl").write_text('{"payload": "x"}\n')
    given = ("import", "-d", at / "into", at / "rows.jsonl", "-t", "t")
    yield shell(*given, "--column", "value=payload", status=2)
    shell(*given)


def load_of_a_table_without_values(shell: Shell, at: Path) -> Iterator[str]:
    pytest.importorskip("deltalake", reason="the extra `lake` is not installed")
    fill(at / "data", records=20)
    shell("table", "sync", "-d", at / "data", "-t", "orders", "--project", "offset", at / "table")
    given = ("table", "load", "-d", at / "back", "-t", "orders", at / "table")
    yield shell(*given, status=2)
    assert "20 records of 1 file" in shell(*given, "--value-format", "json")


def load_of_a_column_that_avro_cannot_name(shell: Shell, at: Path) -> Iterator[str]:
    deltalake = pytest.importorskip("deltalake", reason="the extra `lake` is not installed")
    deltalake.write_deltalake(at / "table", pyarrow.table({"unit price": [1, 2]}))
    given = ("table", "load", "-d", at / "back", "-t", "orders", "-s", "value=avro", at / "table")
    yield shell(*given, status=2)
    field = {"name": "price", "type": "long", "aliases": ["unit price"]}
    (at / "row.avsc").write_text(json.dumps({"type": "record", "name": "Row", "fields": [field]}))
    assert "2 records of 1 file" in shell(*given, "--schema", at / "row.avsc")


def import_of_directory_again(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=20)
    given = ("import", "-d", at / "into", "--format", "kafka-dir", at / "data")
    shell(*given)
    yield shell(*given, status=1)
    shell(*given, "--resume")


def line_of_high_partition(shell: Shell, at: Path) -> Iterator[str]:
    given = ("produce", "-J", "-d", at / "data", "-t", "t")
    line = b'{"payload": "x", "partition": 7}\n'
    yield processes.kafkalog(*given, stdin=line).stderr.decode()
    processes.ok(*given, "-p", "0", stdin=line)


def consume_beyond_the_end(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=20)
    given = ("consume", "-q", "-d", at / "data", "-t", "orders", "-p", "0", "-f", "%o\n", "-o")
    yield shell(*given, "999", status=1)
    assert shell(*given, "beginning").split() == [str(offset) for offset in range(20)]
    assert shell(*given, "end") == "" and shell(*given, "19") == "19\n"


def stored_without_name(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=20)
    given = ("consume", "-q", "-d", at / "data", "-t", "orders", "-p", "0", "-f", "%o\n", "--cursors", at / "cursors")
    yield shell(*given, "-o", "stored", status=2)
    named = (*given, "-G", "name")
    yield shell(*named, "-o", "stored", status=2)
    assert shell(*named).split() == [str(offset) for offset in range(20)]
    assert shell(*named, "-o", "stored") == ""


def replicated_topic(shell: Shell, at: Path) -> Iterator[str]:
    given = ("topics", "create", "-d", at / "data", "-t", "t")
    yield shell(*given, "--replication-factor", "3", status=2)
    shell(*given)


def large_batch_dumped(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=200)
    (index, *_) = sorted((at / "data").glob("orders-0/*.index"))
    yield shell("dump", "--max-message-size", "10", index, status=1)
    shell("dump", "--max-message-size", "10000", index)


def backup_in_the_directory(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=200)
    (index, *_) = sorted((at / "data").glob("orders-0/*.index"))
    index.write_bytes(b"\0" * 3)
    yield shell("repair", "--apply", "--backup-dir", at / "data" / "backup", at / "data", status=2)
    shell("repair", "--apply", "--backup-dir", at / "backup", at / "data")


def redact_backups_in_a_store(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=20)
    shell("backup", "-d", at / "data", f"file://{at}/store")
    redact = ("redact", "--backups", f"file://{at}/store", "-t", "orders", "--offsets", "0:3", "--apply")
    yield shell(*redact, status=2)
    shell(*redact, "--staging", at / "staging")


def redact_encrypted_backups(shell: Shell, at: Path) -> Iterator[str]:
    age = pytest.importorskip("pyrage", reason="pyrage is not installed: pip install 'kafkalog[encryption]'")
    fill(at / "data", records=20)
    identity = age.x25519.Identity.generate()
    (at / "key.txt").write_text(f"{identity}\n")
    recipient = ("--recipient", str(identity.to_public()))
    shell("backup", "-d", at / "data", f"file://{at}/store", *recipient)
    redact = ("redact", "--backups", f"file://{at}/store", "-t", "orders", "--offsets", "0:3", "--apply")
    keys = ("--staging", at / "staging", "--identity", at / "key.txt")
    yield shell(*redact, *keys, status=2)
    shell(*redact, *keys, *recipient)


def bench_on_a_log(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=200)
    given = ("bench", "--benchmarks", "readseq", "--num", "100")
    yield shell(*given, at / "data", status=2)
    shell(*given, "--use-existing", at / "data" / "orders-0")


def follow_a_backup(shell: Shell, at: Path) -> Iterator[str]:
    fill(at / "data", records=20)
    shell("backup", "-d", at / "data", at / "backups")
    given = ("copy", "--from", at / "backups", "--to", at / "copied", "--apply")
    yield shell(*given, "--follow", status=2)
    assert "20 records copied now" in shell(*given)


def import_without_groups(shell: Shell, at: Path) -> Iterator[str]:
    spoilt_groups(at / "data")
    shell("export", "-d", at / "data", "--format", "kafka-dir", "-t", "orders", at / "out")
    yield shell("import", "-d", at / "into", at / "out", "--group-offsets", status=1)
    shell("import", "-d", at / "into", at / "out")


def too_many_values(shell: Shell, at: Path) -> Iterator[str]:
    write_many_keys(at / "data")
    given = ("stats", "-q", "-d", at / "data", "--by", "key")
    yield shell(*given, status=2)
    assert "3 different values" in shell(*given, "--where", "key in ('k7', 'k8', 'k9')")


def consume_with_a_schema_alone(shell: Shell, at: Path) -> Iterator[str]:
    (at / "long.avsc").write_text('"long"')
    with kafkalog.open(at / "data" / "orders-0", "a") as log:
        log.append([b"\x0e"])
    given = ("consume", "-d", at / "data", "-t", "orders", "--schema", at / "long.avsc")
    yield shell(*given, status=2)
    assert shell(*given, "-s", "value=avro") == "7\n"


def consume_avro_without_schemas(shell: Shell, at: Path) -> Iterator[str]:
    (at / "schemas").mkdir()
    (at / "schemas" / "5.avsc").write_text('"long"')
    with kafkalog.open(at / "data" / "orders-0", "a") as log:
        log.append([b"\0\0\0\0\5\x0e"])
    given = ("consume", "-d", at / "data", "-t", "orders", "-s", "value=avro")
    yield shell(*given, status=2)
    assert shell(*given, "--schemas", at / "schemas") == "7\n"


Scenario = Callable[[Shell, Path], Iterator[str]]
RUN: dict[Scenario, tuple[str, ...]] = {
    export_again: ("--resume",),
    export_behind_retention: ("-o",),
    import_again: ("--resume", "--offsets"),
    import_without_offsets: ("--offsets",),
    import_without_topic: ("-t",),
    import_with_columns_of_lines: ("--column",),
    import_of_directory_again: ("--resume",),
    load_of_a_table_without_values: ("--value-format",),
    load_of_a_column_that_avro_cannot_name: ("--schema",),
    redact_without_settings: ("--with",),
    redact_keys_of_a_compacted_topic: ("--erase-key",),
    redact_backups_in_a_store: ("--staging",),
    redact_encrypted_backups: ("--recipient",),
    line_of_high_partition: ("-p",),
    consume_beyond_the_end: ("-o",),
    stored_without_name: ("-G", "-o"),
    replicated_topic: ("--replication-factor",),
    large_batch_dumped: ("--max-message-size",),
    backup_in_the_directory: ("--backup-dir",),
    bench_on_a_log: ("--use-existing",),
    follow_a_backup: ("--follow",),
    import_without_groups: ("--group-offsets",),
    too_many_values: ("--where",),
    consume_with_a_schema_alone: ("-s",),
    consume_avro_without_schemas: ("--schemas",),
}
"""What brings up a hint and then does what it says, with the flags in the hint."""
ELSEWHERE = {
    "--apply", "--excise", "--checkpoints", "--rebuild-indexes", "--truncate-tail", "--on-damage", "--format", "-J",
    "--undo", "--execute",  # in commands: test_hint_commands
    "--partitions",  # more than 10,000: tests/exchange/test_export_import.py
    "--entry",  # tests/tools/test_kept.py
    "--identity",  # tests/backup/test_recipients.py
    "-X",  # tests/lake/test_stores.py
    "--workers",  # tests/server/workers/test_limits.py
    "--force", "--metadata-dir",  # tests/server/replicated, tests/tools/test_handover_refused.py
    "-N", "-f", "-n", "-v",  # a number, of the shell's ulimit, of every command
}  # fmt: skip


@pytest.mark.parametrize("scenario", RUN, ids=lambda one: one.__name__)
def test_flag_of_a_hint_mends_the_call(scenario: Scenario, shell: Shell, tmp_path: Path) -> None:
    said = "".join(scenario(shell, tmp_path))
    assert all(flag in FLAG.findall(said.partition("Hint: ")[2]) for flag in RUN[scenario]), said


def test_every_flag_of_a_hint_is_given_in_a_test() -> None:
    named = {flag for hint in hints() for flag in FLAG.findall(hint)} - OF_OTHER_TOOLS
    assert named - ELSEWHERE == {flag for flags in RUN.values() for flag in flags}
