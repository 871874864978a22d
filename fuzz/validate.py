"""The validator: batches of every format and codec as a leader accepts, refuses or rewrites them."""

from fuzz.leader import validate_and_assign_offsets
from kafkalog._core.batch.scan import scan
from kafkalog.errors import KafkalogError
from kafkalog.records.format import CompressionType
from kafkalog.records.tables import record_tables
from kafkalog.records.validate import ValidationRules

SEALS = True
NOW = 1_700_000_000_000
RULES = [
    ValidationRules(),
    ValidationRules(CompressionType.NONE, append_time=True),
    ValidationRules(CompressionType.SNAPPY, before_ms=1 << 40, after_ms=1 << 40),
    ValidationRules(CompressionType.LZ4, need_keys=True),
]
FIRST = 1000


def run(data: memoryview) -> None:
    """Check that accepted batches are sound and begin at the given offset; its lowest bits select rules and format."""
    kind = data[7] if len(data) > 7 else 0
    rules, magic = RULES[kind & 3], (2, 2, 1, 0)[kind >> 2 & 3]
    try:
        result = validate_and_assign_offsets(data, FIRST, rules, NOW, from_client=kind & 16 == 0, magic=magic)
    except (KafkalogError, ValueError) as error:
        assert isinstance(error, KafkalogError) or "cannot have offsets" in str(error), error
        return
    written = bytes(result.records)
    table = scan(written)
    assert len(table)
    assert table.first_invalid == -1 or scan(data).first_invalid >= 0  # no checksum of a batch is looked at
    records = [record.offset for part in record_tables(written, table) for record in part]
    assert result.next_offset > FIRST
    if result.message_size_maybe_changed:  # else records keep their places in the batch, as in the reference
        assert records == sorted(set(records)) and FIRST <= records[0] and records[-1] < result.next_offset
