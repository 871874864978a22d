"""The hash of a key and the partition it chooses, as the reference's clients do."""

from typing import Any

import pytest

from kafkalog._core.bytes.murmur import murmur2, partition_for_key
from tests.golden_cases import each_entry

pytestmark = pytest.mark.golden


@each_entry("murmur2")
def test_hash_and_partition(entry: dict[str, Any]) -> None:
    key = bytes.fromhex(entry["key"])
    assert murmur2(key) == entry["murmur2"]
    assert murmur2(key) & 0x7FFFFFFF == entry["toPositive"]
    for count, partition in entry["partition"].items():
        assert partition_for_key(key, int(count)) == partition, f"of {count} partitions"
