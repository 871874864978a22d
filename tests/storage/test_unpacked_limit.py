"""max.decompressed.message.bytes: the largest record of a compressed batch, where a broker of 4.4 applies it."""

from pathlib import Path

import pytest

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.pass_ import clean
from kafkalog.cleaner.types import ASKED, LogToClean
from kafkalog.errors import InvalidRecord
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import MAX_TIMESTAMP
from tests.raw_batches import batch as raw_batch
from tests.storage import logs

GZIP, NONE = CompressionType.GZIP, CompressionType.NONE


def batch_of(*sizes: int, codec: CompressionType = GZIP) -> bytearray:
    """A batch whose values have these sizes; a value of 992 bytes makes a record of 1,000 behind its length."""
    builder = RecordsBuilder(compression=codec)
    for number, size in enumerate(sizes):
        builder.append(logs.NOW + number, b"k", b"v" * size)
    return bytearray(builder.build())


def open_log(path: Path, most_bytes: int) -> UnifiedLog:
    return logs.log(path, cleanup_policy="compact", max_decompressed_message_bytes=most_bytes)


@pytest.mark.parametrize(
    ("sizes", "codec", "is_taken"),
    [((992,), GZIP, True), ((993,), GZIP, False), ((10, 1200), GZIP, False), ((10, 1200), NONE, True),
     ((900,) * 5, GZIP, True)],
)  # fmt: skip
def test_an_append(tmp_path: Path, sizes: tuple[int, ...], codec: CompressionType, is_taken: bool) -> None:
    """With a limit of 1,000, as a broker of 4.4.0: each record counts, and none of an uncompressed batch."""
    log = open_log(tmp_path, 1000)
    if is_taken:
        log.append_as_leader(batch_of(*sizes, codec=codec))
    else:
        with pytest.raises(InvalidRecord, match=r"larger than max\.decompressed\.message\.bytes") as caught:
            log.append_as_leader(batch_of(*sizes, codec=codec))
        assert not getattr(caught.value, "record_errors", None)
    assert log.log_end_offset == (len(sizes) if is_taken else 0)
    log.close()


def test_what_is_stored_is_looked_up_and_cleaned_only_below_the_limit(tmp_path: Path) -> None:
    log = open_log(tmp_path, 2**31 - 9)
    log.append_as_leader(batch_of(10, 10, 900))
    log.append_as_leader(batch_of(900, codec=NONE))
    log.roll()
    log.close()
    log = open_log(tmp_path, 500)
    assert log.offset_for_time(logs.NOW).offset == 0
    assert log.offset_for_time(logs.NOW + 1).offset == 1
    for timestamp in (logs.NOW + 2, MAX_TIMESTAMP):
        with pytest.raises(InvalidRecord, match="more than 500 bytes, decompressed") as caught:
            log.offset_for_time(timestamp)
        assert caught.value.hint == "raise max.decompressed.message.bytes"
    for first_dirty in (0, 3):  # the large record is in what is dirty, or in what was clean
        to_clean = LogToClean.of(log, first_dirty, log.active_segment.base_offset, ASKED)
        with pytest.raises(InvalidRecord, match="more than 500 bytes, decompressed"):
            clean(to_clean, SkimpyOffsetMap(24 * 100), now_ms=logs.NOW)
    log.close()
    log = open_log(tmp_path, 1000)
    assert log.offset_for_time(MAX_TIMESTAMP).offset == 2
    clean(LogToClean.of(log, 0, log.active_segment.base_offset, ASKED), SkimpyOffsetMap(24 * 100), now_ms=logs.NOW)
    log.close()


@pytest.mark.parametrize("size", [400, 900])
def test_the_largest_timestamp_below_the_log_start_is_found_within_the_limit(tmp_path: Path, size: int) -> None:
    """As a broker finds it after DeleteRecords, while its segment is there."""
    log = open_log(tmp_path, 2**31 - 9)
    log.append_as_leader(batch_of(10, size))
    log.append_as_leader(bytearray(raw_batch(0, [(1000, b"k", b"v")])))
    log.update_high_watermark(3)
    log.maybe_increment_log_start_offset(2)
    log.close()
    log = open_log(tmp_path, 500)
    if size < 500:
        assert log.offset_for_time(MAX_TIMESTAMP).offset == 1
    else:
        with pytest.raises(InvalidRecord, match="more than 500 bytes, decompressed"):
            log.offset_for_time(MAX_TIMESTAMP)
    log.close()
