"""Manifests and custom metadata by themselves: what they say, and the sizes that no segment has."""

import base64
import json
import struct
from typing import Any

import pytest

from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.tiered.manifest import (
    Chunk,
    CustomFields,
    Encryption,
    Manifest,
    custom_metadata,
    parse_custom,
    parse_manifest,
)

FIXED = {"type": "fixed", "originalChunkSize": 100, "originalFileSize": 250, "transformedChunkSize": 110,
         "finalTransformedChunkSize": 60}  # fmt: skip
ENCRYPTION = {"dataKey": f"k:{base64.b64encode(b'wrapped').decode()}", "aad": base64.b64encode(b"aad").decode()}


def parsed(index: dict[str, Any], **fields: Any) -> Manifest:
    document = {"version": "1", "chunkIndex": index, "segmentIndexes": {}, "compression": False} | fields
    return parse_manifest(json.dumps(document).encode())


def packed(*sizes: bytes, file_bytes: int = 250) -> dict[str, Any]:
    """A chunk index of the type variable."""
    text = base64.b64encode(compress(CompressionType.ZSTD, b"".join(sizes))).decode()
    return {"type": "variable", "originalChunkSize": 100, "originalFileSize": file_bytes, "transformedChunks": text}


def test_chunks_of_equal_size() -> None:
    found = parsed(FIXED)
    assert [found.chunks.chunk_at(at) for at in (0, 99, 100, 200, 249)] == [
        Chunk(0, 100, 0, 110), Chunk(0, 100, 0, 110), Chunk(100, 100, 110, 110), Chunk(200, 50, 220, 60),
        Chunk(200, 50, 220, 60),
    ]  # fmt: skip
    assert (found.encryption, found.segment, found.is_compressed, dict(found.indexes)) == (None, None, False, {})


@pytest.mark.parametrize(
    ("index", "chunks"),
    [
        (packed(struct.pack(">iiB", 3, 300, 2), struct.pack(">HH", 0, 700), struct.pack(">i", 20)),
         [Chunk(0, 100, 0, 300), Chunk(100, 100, 300, 1000), Chunk(200, 50, 1300, 20)]),
        (packed(struct.pack(">iiB", 2, 5, 1), b"\x07", struct.pack(">i", 2**31 - 1), file_bytes=200),
         [Chunk(0, 100, 0, 12), Chunk(100, 100, 12, 2**31 - 1)]),
        (packed(struct.pack(">iiB", 2, 5, 4), b"\0\1\0\0", struct.pack(">i", 1), file_bytes=101),
         [Chunk(0, 100, 0, 65541), Chunk(100, 1, 65541, 1)]),
        (packed(struct.pack(">ii", 1, 40), file_bytes=100), [Chunk(0, 100, 0, 40)]),
        (packed(struct.pack(">ii", 1, 0), file_bytes=1), [Chunk(0, 1, 0, 0)]),
        (packed(struct.pack(">i", 0), file_bytes=0), []),
    ],
)  # fmt: skip
def test_chunks_of_any_size(index: dict[str, Any], chunks: list[Chunk]) -> None:
    found = parsed(index, compression=True).chunks
    assert found.count == len(chunks) and [found.chunk_at(100 * n) for n in range(found.count)] == chunks


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        (struct.pack(">iiBH", 2, 5, 2, 1), "11 bytes of chunk sizes instead of 15"),
        (struct.pack(">iiB", 2, 5, 5) + bytes(9), "18 bytes of chunk sizes instead of 18"),
        (struct.pack(">iiB", 2, 5, 0) + bytes(4), "13 bytes of chunk sizes instead of 13"),
        (struct.pack(">iiBBi", 3, 300, 1, 0, 20), "14 bytes of chunk sizes instead of 15"),
        (struct.pack(">i", -1), "cannot be"),
        (struct.pack(">iiB", 2, -1, 1) + struct.pack(">Bi", 0, 1), "the chunk sizes cannot be right"),
        (struct.pack(">iiB", 2, 1, 1) + struct.pack(">Bi", 0, -1), "the chunk sizes cannot be right"),
        (struct.pack(">iii", 1, 40, 0), "the chunk sizes cannot be right"),
        (struct.pack(">ii", 1, -1), "the chunk sizes cannot be right"),
        (struct.pack(">ii", 0, 0), "the chunk sizes cannot be right"),
        (b"abc", "cannot be read"),
        (struct.pack(">ii", 1, 40), "1 chunks instead of 3 for 250 bytes"),
    ],
)
def test_sizes_that_no_segment_has(sizes: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parsed(packed(sizes))


def test_numbers_at_their_limits() -> None:
    most = 2**31 - 1
    whole = {"type": "fixed", "originalChunkSize": most, "originalFileSize": most, "transformedChunkSize": 0,
             "finalTransformedChunkSize": most}  # fmt: skip
    assert parsed(whole).chunks.count == 1, "chunks that are neither compressed nor encrypted are read in parts"
    for name in whole.keys() - {"type"}:
        for wrong in (most + 1, -1, True, 1.0, "1", None):
            with pytest.raises(ValueError, match=f"{name} is"):
                parsed(whole | {name: wrong})
    assert parsed(FIXED | {"originalChunkSize": 1}).chunks.count == 250
    with pytest.raises(ValueError, match="originalChunkSize is 0, not a number from 1"):
        parsed(FIXED | {"originalChunkSize": 0})
    for content in (b"[]", b'"version"', b"{}", b'{"version": 1}'):
        with pytest.raises(ValueError, match="not a manifest of version 1"):
            parse_manifest(content)
    for more in ({"compression": True}, {"encryption": ENCRYPTION}):
        for size in (1 << 30, (1 << 30) + 1):
            assert parsed(whole | {"originalChunkSize": size, "originalFileSize": 1 << 30}, **more).chunks.count == 1
        parsed(whole | {"originalChunkSize": 1 << 30}, **more)
        with pytest.raises(ValueError, match="chunks of 1073741825 bytes, at most 1073741824 expected"):
            parsed(whole | {"originalChunkSize": (1 << 30) + 1}, **more)


def test_places_of_indexes_and_the_encryption() -> None:
    places = {
        "offset": {"position": 0, "size": 8}, "timestamp": {"position": 8, "size": 256 << 20}, "transaction": None,
    }  # fmt: skip
    found = parsed(FIXED, segmentIndexes=places, encryption=ENCRYPTION, remoteLogSegmentMetadata={"a": 1})
    assert found.indexes == {".index": (0, 8), ".timeindex": (8, 256 << 20)}
    assert found.encryption == Encryption("k", b"wrapped", b"aad")
    assert found.segment == {"a": 1} and parsed(FIXED, remoteLogSegmentMetadata=5).segment is None
    for key, words in (("k", "dataKey is not"), (":AAAA", "dataKey is not"), ("k:A!AAA", "dataKey is not base64")):
        with pytest.raises(ValueError, match=words):
            parsed(FIXED, encryption=ENCRYPTION | {"dataKey": key})
    with pytest.raises(ValueError, match="size is 268435457, not a number from 0 to 268435456"):
        parsed(FIXED, segmentIndexes={"offset": {"position": 0, "size": (256 << 20) + 1}})


@pytest.mark.parametrize(
    ("fields", "size", "found"),
    [
        (CustomFields("p/", "k", 0), 300, CustomFields("p/", "k", 300)),
        (CustomFields("", "ü" * 100, 5), None, CustomFields("", "ü" * 100)),
        (CustomFields(size=1), 2**62, CustomFields(size=2**62)),
        (CustomFields(key="k"), 7, CustomFields(key="k")),
        (CustomFields(), 7, CustomFields()),
    ],
)
def test_custom_metadata_comes_back(fields: CustomFields, size: int | None, found: CustomFields) -> None:
    data = custom_metadata(fields, size)
    assert (data is None) == (found == CustomFields()) and parse_custom(data) == found


def test_sizes_in_custom_metadata_take_the_fewest_bytes() -> None:
    assert custom_metadata(CustomFields(key="x" * 126), None) == b"\x01\x02\x7f\x7f" + b"x" * 126
    assert custom_metadata(CustomFields(size=0), 64) == b"\x01\x00\x02\x80\x01"
    assert parse_custom(b"\x01\x09\x00") == CustomFields(), "an unknown field, without a byte"


@pytest.mark.parametrize(
    "data",
    [
        b"\x01", b"\x01\x00", b"\x01\x00\x02\x02", b"\x01\x00\x00", b"\x01\x00\x01\x80", b"\x01\x00\x02\x02\x02",
        b"\x01\x00\x0b" + b"\x80" * 10 + b"\x00", b"\x01\x01\x02\x03a", b"\x01\x01\x03\x02ab", b"\x01\x01\x00",
        b"\x01\x00\x02\x01\x01", b"\x01\x00\x03\x80\x02\x01", b"\x01\x09\xff\xff\xff\xff\x0f",
        b"\x01\x01\x01\x80", b"\x02\x00\x01\x02",
    ],
)  # fmt: skip
def test_custom_metadata_that_is_malformed(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_custom(data)
