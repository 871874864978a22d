"""The reference's offset map, step by step."""

from typing import Any

import pytest

from kafkalog._core.clean.offset_map import BYTES_PER_SLOT, SkimpyOffsetMap
from tests.golden_cases import each_entry

pytestmark = pytest.mark.golden


def outcome(made: SkimpyOffsetMap, step: dict[str, Any]) -> Any:
    """What a step gives, as the vector words it."""
    key = bytes.fromhex(step.get("key", ""))
    if step["op"] == "get":
        return made.get(key)
    if step["op"] == "put":
        try:
            made.put(key, step["offset"])
        except ValueError as error:
            return {"exception": "java.lang.IllegalArgumentException", "message": str(error)}
        return "ok"
    if step["op"] == "updateLatestOffset":
        made.update_latest_offset(step["offset"])
    elif step["op"] == "clear":
        made.clear()
    return None


def number(value: Any) -> str:
    return str(float(value))


@each_entry("skimpy_offset_map")
def test_every_step(entry: dict[str, Any]) -> None:
    """CLN-1, CLN-2, the collision rate included. A map without slots says of a key that it is not there, where the
    reference divides by zero."""
    made = SkimpyOffsetMap(entry["memory"], "md5")
    assert (made.slots, BYTES_PER_SLOT) == (entry["slots"], entry["bytesPerEntry"])
    for step in entry["ops"]:
        assert outcome(made, step) == step.get("result")
        if step["op"] == "clear":
            expected = step["getAfter"] if entry["slots"] else -1
            assert made.get(b"") == expected
            made.clear()
        assert made.size == step.get("size", made.size)
        assert made.latest_offset == step.get("latestOffset", made.latest_offset)
        if "utilization" in step:
            assert number(made.utilization) == number(step["utilization"])
        if "collisionRate" in step:
            assert number(made.collision_rate) == number(step["collisionRate"])
