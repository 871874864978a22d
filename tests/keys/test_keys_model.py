"""Look-ups by key give what reading the whole log gives, whatever was done to the log and to its key indexes."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import kafkalog
from tests.memory import memory

KEYS = [b"", b"a", b"b", b"key-3", b"key-4", b"a longer key of more than sixteen bytes", b"k" * 60]
NOBODY = b"nobody"
Key = st.sampled_from(KEYS)
Large = st.builds(lambda size, byte: bytes([byte]) * size, st.integers(150, 450), st.integers(0, 255))
Value = st.one_of(st.none(), st.binary(max_size=60), Large)
"""Batches of ten large values are read in sections, once they were read whole."""
SETTINGS = {"segment_bytes": 16_000, "cleanup_policy": "compact", "file_delete_delay_ms": 0}


def check(log: kafkalog.Log, isolation: str | None = None) -> None:
    """All look-ups in a log against all its records."""
    model: dict[bytes, list[kafkalog.Record]] = {}
    for record in log.records(isolation=isolation):
        if record.key is not None:
            model.setdefault(record.key, []).append(record)
    keys = [*KEYS, NOBODY]
    expected = [model[key][-1] if key in model else None for key in keys]
    assert [log.get(key, isolation=isolation) for key in keys] == expected
    assert log.get_many(keys * 2, isolation=isolation) == expected * 2
    table = log.get_table(keys * 2, ["offset", "value"], isolation=isolation)
    assert [(row["offset"], row["value"]) for row in table] == [
        (None, None) if record is None else (record.offset, record.value) for record in expected * 2
    ]
    assert [list(log.history(key, isolation=isolation)) for key in keys] == [model.get(key, []) for key in keys]
    live = {key: records[-1] for key, records in model.items() if records[-1].value is not None}
    for in_memory in (False, True):
        latest = log.latest(in_memory=in_memory, isolation=isolation)
        assert dict(latest) == live and len(latest) == len(live)
        assert list(latest) == sorted(live, key=lambda key: live[key].offset)
        assert [key in latest for key in keys] == [key in live for key in keys]
    if isolation is None:
        assert [key in log for key in keys] == [key in model for key in keys]


class KeyedLog(RuleBasedStateMachine):
    """A log, two readers of it, and indexes beside the segments and in a directory of their own."""

    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory(dir=memory())
        self.path = Path(self.directory.name, "data", "t-0")
        self.store = Path(self.directory.name, "store")
        self.path.parent.mkdir()
        self.open()
        self.reader = kafkalog.open(self.path)
        self.stored = kafkalog.open(self.path, key_index=self.store)
        self.short_of_memory = kafkalog.open(self.path, key_memory_bytes=64 * 28)
        self.follow()

    def follow(self) -> None:
        """Mappings that live through whatever happens to their logs."""
        self.mappings = [self.log.latest(in_memory=True), self.stored.latest(in_memory=True), self.stored.latest()]

    def open(self) -> None:
        # a map of up to 64 records: what lies behind is searched
        self.log = kafkalog.open(self.path, "a", key_memory_bytes=64 * 28, **SETTINGS)  # type: ignore[arg-type]

    @rule(records=st.lists(st.tuples(Key, Value), min_size=1, max_size=30), codec=st.sampled_from(["none", "lz4"]))
    def append(self, records: list[tuple[bytes, bytes | None]], codec: str) -> None:
        self.log.append(records, compression=codec)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(back=st.integers(0, 60))
    def truncate(self, back: int) -> None:
        self.log.truncate_to(max(self.log.start_offset, self.log.end_offset - back))

    @rule(ahead=st.integers(0, 40))
    def delete(self, ahead: int) -> None:
        self.log.delete_before(min(self.log.start_offset + ahead, self.log.end_offset))

    @rule(roll=st.booleans())
    def compact(self, roll: bool) -> None:
        self.log.compact(roll=roll)

    @rule(rebuild=st.booleans())
    def build(self, rebuild: bool) -> None:
        infos = self.log.build_key_index(rebuild=rebuild)
        assert [info.state for info in infos] == ["ok"] * (len(self.log.segments) - 1)
        assert self.log.key_index() == infos

    @rule()
    def build_in_store(self) -> None:
        assert {info.state for info in self.stored.build_key_index()} <= {"ok"}

    @rule()
    def drop(self) -> None:
        self.log.drop_key_index()
        assert not list(self.path.glob("*.keyindex*"))

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.open()
        self.follow()

    @rule()
    def reopen_reader(self) -> None:
        self.reader.close()
        self.reader = kafkalog.open(self.path)

    @precondition(lambda self: hasattr(self, "log"))
    @rule(isolation=st.sampled_from([None, "high_watermark", "read_committed"]))
    def look_up(self, isolation: str | None) -> None:
        for log in (self.log, self.reader, self.stored, self.short_of_memory):
            check(log, isolation)
        last = {record.key: record for record in self.log}
        live = {key: record for key, record in last.items() if record.value is not None}
        for mapping in self.mappings:
            assert dict(mapping) == live and len(mapping) == len(live)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.look_up(None)
            for log in (self.log, self.reader, self.stored, self.short_of_memory):
                log.close()
            self.directory.cleanup()


TestKeyedLog = pytest.mark.filterwarnings("ignore:segment.bytes")(KeyedLog.TestCase)
TestKeyedLog.settings = settings(max_examples=40, stateful_step_count=15)
