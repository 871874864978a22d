"""Varints as the reference writes and reads them (REC-8: one that never ends is refused)."""

from typing import Any

import pytest

from kafkalog._core.bytes import varint
from tests.golden_cases import each_entry

pytestmark = pytest.mark.golden

ENCODE = {
    "varint": (varint.encode_varint, varint.size_of_varint, varint.decode_varint),
    "unsigned_varint": (varint.encode_uvarint, varint.size_of_uvarint, varint.decode_uvarint),
    "varlong": (varint.encode_varlong, varint.size_of_varlong, varint.decode_varlong),
}
READ_FAILURES = {
    "java.nio.BufferUnderflowException": EOFError,
    "java.lang.IllegalArgumentException": ValueError,
}


@each_entry("varint", where=lambda entry: "value" in entry)
def test_written_sized_and_read_back(entry: dict[str, Any]) -> None:
    encode, size_of, decode = ENCODE[entry["type"]]
    assert encode(entry["value"]).hex() == entry["hex"]
    assert size_of(entry["value"]) == entry["size"]
    assert decode(bytes.fromhex(entry["hex"])) == (entry["value"], entry["size"])


@each_entry("varint", where=lambda entry: "result" in entry)
def test_read(entry: dict[str, Any]) -> None:
    decode = ENCODE[entry["type"].removeprefix("read_")][2]
    data = bytes.fromhex(entry["hex"])
    if isinstance(entry["result"], dict):
        with pytest.raises(READ_FAILURES[entry["result"]["exception"]]):
            decode(data)
    else:
        assert decode(data)[0] == entry["result"]
