"""Both checksums, whole and in two pieces (the second continues from the first)."""

from typing import Any

import pytest

from kafkalog._core.bytes.crc import crc32, crc32c
from tests.golden_cases import each_entry

pytestmark = pytest.mark.golden

FUNCTIONS = {"crc32c": crc32c, "crc32": crc32}


@each_entry("crc")
def test_checksums(entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["hex"])
    middle = len(data) // 2
    for name in FUNCTIONS.keys() & entry.keys():
        checksum = FUNCTIONS[name]
        assert checksum(data) == entry[name], name
        assert checksum(data[middle:], checksum(data[:middle])) == entry[name], f"{name} in two pieces"
