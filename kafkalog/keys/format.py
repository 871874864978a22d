"""The file of a key index (docs/keys.md): a header with checksums, and pages of entries.

    header      magic, version, CRC-32C, sizes, the segment's identity, the secret of the hash
    blocks      entries, bits, marks of each, 24 bytes a block
    checksums   CRC-32C of each page, four bytes a page
    pages       the blocks, one behind the other, cut into pages of 16 KiB

All numbers are little-endian. A file that is cut, flipped or of another version is never used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafkalog._core.bytes.crc import crc32c
from kafkalog._core.keys.key_builder import INDEX_PAGE_BYTES
from kafkalog._core.keys.key_index import KeyIndex, block_bytes, bucket_bits
from kafkalog.errors import CorruptIndex
from kafkalog.sidecars.identity import FileStamp
from kafkalog.storage.lazy_file import DataFile

MAGIC: Final = b"KLKEYIDX"
VERSION: Final = 1
MEMORY_PAGE_BYTES: Final = 4096
_HEADER: Final = struct.Struct("<8sIIQQqqQ16s16sQQqqQII")
_BLOCK: Final = struct.Struct("<QQQ")
_CHECKED_FROM: Final = 16
"""Bytes of the header before those that its checksum covers: magic, version and the checksum."""
_MOST_HEADER_BYTES: Final = 64 << 20
_HINT: Final = "the segment is searched instead; build the index again"


class KeyIndexHeader(NamedTuple):
    """The description that a key index has of itself and of its segment; `digest` is that of the batches' headers.

    `next_offset` is the offset after the segment's last batch. `stamp` is NO_STAMP if the file had just been written.
    """

    base_offset: int
    next_offset: int
    segment_bytes: int
    digest: bytes
    secret: bytes
    stamp: FileStamp
    records: int
    file_bytes: int = 0


class Block(NamedTuple):
    """A block as `KeyBuilder.finish` returns it."""

    data: bytes
    entries: int
    bits: int
    marks: int


def packed(header: KeyIndexHeader, blocks: Sequence[Block]) -> tuple[bytes, memoryview]:
    """Return the content of a key index file in two parts, of which the first is short and ends a page of memory.

    So the pages, which are most of it, are neither copied here nor written across the system's pages.
    """
    pages = blocks[0].data if len(blocks) == 1 else b"".join(block.data for block in blocks)
    view = memoryview(pages)
    starts = range(0, len(pages), INDEX_PAGE_BYTES)
    checksums = struct.pack(f"<{len(starts)}I", *(crc32c(view[at : at + INDEX_PAGE_BYTES]) for at in starts))
    table = b"".join(_BLOCK.pack(block.entries, block.bits, block.marks) for block in blocks)
    header_bytes = _HEADER.size + len(table) + len(checksums)
    fields = _HEADER.pack(
        MAGIC, VERSION, 0, header_bytes, header_bytes + len(pages), header.base_offset, header.next_offset,
        header.segment_bytes, header.digest, header.secret, *header.stamp, header.records, len(blocks), len(starts),
    )  # fmt: skip
    checked = fields[_CHECKED_FROM:] + table + checksums
    start = MAGIC + struct.pack("<II", VERSION, crc32c(struct.pack("<I", VERSION) + checked))
    to_page = -(len(start) + len(checked)) % MEMORY_PAGE_BYTES
    return b"".join((start, checked, view[:to_page])), view[to_page:]


def read_header(file: DataFile) -> tuple[KeyIndexHeader, KeyIndex]:
    """Return the header of a key index file, and the index to search in, which reads its pages when it needs them.

    Raises CorruptIndex for a file that is not whole, not sound or of another version, OSError.
    """
    size = file.stat().st_size
    fixed = file.pread(_HEADER.size, 0)
    if len(fixed) < _HEADER.size:
        raise _unsound("is shorter than its header", file)
    (
        magic, version, checksum, header_bytes, file_bytes, base_offset, next_offset, segment_bytes, digest, secret,
        *stamp, records, block_count, page_count,
    ) = _HEADER.unpack(fixed)  # fmt: skip
    if magic != MAGIC:
        raise _unsound("does not begin as a key index does", file)
    if version != VERSION:
        raise _unsound(f"has version {version}", file)
    if header_bytes != _HEADER.size + _BLOCK.size * block_count + 4 * page_count or header_bytes > _MOST_HEADER_BYTES:
        raise _unsound("has a header whose sizes contradict each other", file)
    if file_bytes != size or header_bytes > size:
        raise _unsound(f"has {size} bytes instead of {file_bytes}", file)
    rest = file.pread(header_bytes - _HEADER.size, _HEADER.size)
    checked = b"".join((struct.pack("<I", version), fixed[_CHECKED_FROM:], rest))
    if len(rest) != header_bytes - _HEADER.size or crc32c(checked) != checksum:
        raise _unsound("has a header that does not match its checksum", file)
    header = KeyIndexHeader(
        base_offset, next_offset, segment_bytes, digest, secret, FileStamp(*stamp), records, file_bytes
    )
    return header, _index_of(file, header, rest, block_count, header_bytes)


def _index_of(file: DataFile, header: KeyIndexHeader, rest: bytes, block_count: int, header_bytes: int) -> KeyIndex:
    tables = _BLOCK.size * block_count
    blocks = [*_BLOCK.iter_unpack(rest[:tables])]
    pages_bytes = header.file_bytes - header_bytes
    sizes = 0
    for entries, bits, marks in blocks:
        if entries >= 2**32 or marks >= 2**32 or bits != bucket_bits(entries):
            raise _unsound("has a block that cannot be", file)
        sizes += block_bytes(entries, bits, marks)
    is_range = 0 <= header.base_offset <= header.next_offset <= header.base_offset + 2**32
    if sizes != pages_bytes or not is_range or header.segment_bytes >= 2**32:
        raise _unsound("has sizes that contradict each other", file)
    if -(-pages_bytes // INDEX_PAGE_BYTES) * 4 != len(rest) - tables:
        raise _unsound("has a wrong number of checksums", file)
    return KeyIndex(
        file.pread, pages_at=header_bytes, pages_bytes=pages_bytes, checksums=rest[tables:], blocks=blocks,
        base_offset=header.base_offset, next_offset=header.next_offset, segment_bytes=header.segment_bytes,
    )  # fmt: skip


def _unsound(what: str, file: DataFile) -> CorruptIndex:
    return CorruptIndex(f"the key index {what}", path=file.path, hint=_HINT)
