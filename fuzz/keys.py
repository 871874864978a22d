"""Key indexes: header and pages, as they are and with right checksums; the keys of batches, gathered and found."""

import os
import struct
from array import array
from types import SimpleNamespace

from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.bytes.crc import crc32c
from kafkalog._core.keys.given_keys import GivenKeys, hash_keys
from kafkalog._core.keys.key_builder import INDEX_PAGE_BYTES, KeyBuilder
from kafkalog._core.keys.key_columns import KeyColumns
from kafkalog._core.keys.key_finder import KeyFinder
from kafkalog._core.keys.key_index import IS_DAMAGED, KeyIndex
from kafkalog._core.keys.key_map import KeyMap
from kafkalog._core.keys.key_reader import UNDECIDED, KeyReader, ReadPart
from kafkalog._core.keys.key_records import KeyRecords
from kafkalog._core.keys.key_walk import SegmentDigest
from kafkalog.errors import CorruptIndex
from kafkalog.keys.format import MAGIC, read_header

SEALS = True
SECRET = bytes(16)
KEYS = [b"", b"k", b"key"]
ALL_KINDS = bytes(range(8))
HASHES = [0, 1, 2**32 - 1, 2**63, 2**64 - 1]
MANY = array("Q", HASHES * 30)
HEADER_BYTES = 136
BLOCK_BYTES = 24
END = 2**31


class Content:
    """A file that holds the data."""

    path = "f"

    def __init__(self, content: bytes) -> None:
        self.content = content

    def pread(self, size: int, position: int) -> bytes:
        """A part of the data."""
        return self.content[position : position + size]

    def read(self, position: int, size: int) -> bytes:
        """Return the data as that of a segment's records."""
        return self.pread(size, position)

    def stat(self) -> os.stat_result:
        """Only its size is asked for."""
        return os.stat_result((0, 0, 0, 0, 0, 0, len(self.content), 0, 0, 0))


def run(data: memoryview) -> None:
    """An index gives offsets of its segment, or says that it is damaged; what was gathered from batches is found."""
    content = bytes(data)
    if content[:8] == MAGIC:
        opened(content)
        opened(sealed(content))
    else:
        gathered(content)


def sealed(content: bytes) -> bytes:
    """The data with the checksums that it should have."""
    if len(content) < HEADER_BYTES:
        return content
    blocks, pages = struct.unpack_from("<II", content, HEADER_BYTES - 8)
    start = HEADER_BYTES + BLOCK_BYTES * blocks
    end = start + 4 * pages
    if end > len(content):
        return content
    body = memoryview(content)[end:]
    sums = [crc32c(body[at : at + INDEX_PAGE_BYTES]) for at in range(0, INDEX_PAGE_BYTES * pages, INDEX_PAGE_BYTES)]
    checked = content[16:start] + struct.pack(f"<{pages}I", *sums)
    checksum = struct.pack("<I", crc32c(content[8:12] + checked))
    return content[:12] + checksum + checked + content[end:]


def opened(content: bytes) -> None:
    """A file that may be an index."""
    try:
        header, index = read_header(Content(content))  # type: ignore[arg-type]
    except CorruptIndex as error:
        assert error.path == "f"
        return
    searched(index, header.base_offset, header.next_offset)


def searched(index: KeyIndex, base: int, end: int) -> None:
    """Check that found entries lie in the segment."""
    for hashed in HASHES:
        found = index.find_last(hashed, end)
        assert found in (-1, IS_DAMAGED) or base <= found < end
        assert all(base <= offset < end for offset in index.find_all(hashed, base, end) or ())
    offsets = array("q", [-1] * len(MANY))
    index.find_last_many(MANY, end, offsets)
    for offset in (base, (base + end) // 2, end - 1):
        position, size = index.place(offset)
        assert position == -1 or size > 0
    index.release()
    index.is_sound()


def gathered(content: bytes) -> None:
    """The keys of plain batches: an index, a map and a search agree."""
    table = scan(content, check_crc=False, file_mode=True)
    digest = SegmentDigest(SECRET)
    digest.take(content, table, 0, len(table))
    assert digest.batches == len(table)
    if not all(0 <= one.base_offset <= one.last_offset < END for one in table):
        return  # a segment has no such batch
    hashes = hash_keys(SECRET, KEYS)
    builder, held = KeyBuilder(SECRET, 0, END), KeyMap(SECRET, 0)
    finder = KeyFinder(SECRET, hashes, 0, END)
    builder.mark(table, 0, len(table))
    sound = builder.take(content, table, 0, len(table))
    assert held.take(content, table, 0, len(table)) == sound == finder.take(content, table, 0, len(table))
    block, entries, bits, marks = builder.finish()
    pages = [block[at : at + INDEX_PAGE_BYTES] for at in range(0, len(block), INDEX_PAGE_BYTES)]
    index = KeyIndex(
        Content(block).pread,
        pages_at=0, pages_bytes=len(block), checksums=b"".join(crc32c(one).to_bytes(4, "little") for one in pages),
        blocks=[(entries, bits, marks)], base_offset=0, next_offset=END, segment_bytes=len(content),
    )  # fmt: skip
    for hashed, last in zip(array("Q", hashes), array("q", finder.last_offsets), strict=True):
        assert index.find_last(hashed, END) == last == held.find_last(hashed, END)
    read_twice(index, content)
    picked(content, table, finder.last_offsets)


def picked(content: bytes, table: BatchTable, offsets: bytes) -> None:
    """The records of many keys as objects and as columns are the same, also of batches that are damaged."""
    records, columns = KeyRecords(GivenKeys(KEYS), offsets, 0, 1), KeyColumns(GivenKeys(KEYS), offsets, 0)
    for one in (records, columns):
        if not one.take(content, table, 0, len(table)):
            assert one.status and 0 <= one.error_batch < len(table) and one.error_text
    assert records.missed == columns.missed and records.offset == columns.offset
    records.finish()
    made = columns.finish(ALL_KINDS, topic=b"t")
    if made is None:
        assert columns.missed == records.missed
        made = columns.finish(ALL_KINDS, topic=b"t")
    assert made is not None
    assert len(made) == len(KEYS) == len(records.records)
    for key, record, *row in zip(KEYS, records.records, *(made.values(kind, 0, 3) for kind in ALL_KINDS), strict=True):
        if record is None:
            assert row == [None] * 8
        else:
            assert (record.key, record.value, record.offset, record.timestamp) == (key, row[1], row[4], row[5])
            # what stands for bytes of a name that are no text is not the same in both
            values = [[value for _, value in headers] for headers in (record.headers, row[7])]
            assert record.timestamp_type == row[6] and values[0] == values[1] and row[0] == key


def read_twice(index: KeyIndex, content: bytes) -> None:
    """A record that is read by its index has the key: from the whole batch, from a section, and where bytes changed."""
    changed = bytearray(content)
    changed[-1:] = [changed[-1] ^ 1] if content else []
    source = SimpleNamespace(state="unchanged", closed=False)
    for data in (content, content, bytes(changed)):
        part = ReadPart(SECRET, 0, index, Content(data).read, None)
        reader = KeyReader(source, [part], lambda offset: None, lambda: None)
        reader.state, reader.start_offset = source.state, 0
        for key in KEYS:
            found = reader.get(key)
            assert found is None or found is UNDECIDED or found.key == key
            assert not isinstance(found, Record) or found.value is None or len(found.value) <= len(data)
