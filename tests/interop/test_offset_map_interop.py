"""kafkalog's offset map beside Kafka's, which reports its collision rate: filled to the last slot, and queried."""

import base64
from random import Random
from typing import Any

import pytest

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from tests.interop import toolchain
from tests.interop.reference import Reference


def ask(reference: Reference, memory: int, put: list[bytes], get: list[bytes]) -> Any:
    encoded = {name: [base64.b64encode(key).decode() for key in keys] for name, keys in (("put", put), ("get", get))}
    jars = [str(path) for path in toolchain.offset_map_jars()]
    return reference.ask("offset_map", jars=jars, memory=memory, **encoded)


@pytest.mark.parametrize(("slots", "seed"), [(1000, 1), (1000, 2), (1000, 3), (1, 4), (2, 5), (63, 6), (4096, 7)])
def test_a_map_filled_to_its_last_slot_has_the_collisions_of_the_real_one(
    reference: Reference, slots: int, seed: int
) -> None:
    """CLN-1, CLN-2: for random keys, each put and read back, and for missing keys."""
    rng = Random(seed)
    keys = list({rng.randbytes(rng.randint(0, 40)) for _ in range(2 * slots + 9)})
    put, others = keys[:slots], keys[slots:]
    made = SkimpyOffsetMap(24 * slots, "md5")
    for offset, key in enumerate(put):
        made.put(key, offset)
    rate_of_puts = made.collision_rate
    expected = {
        "version": "3.9.1",
        "slots": slots,
        "size": slots,
        "rate_of_puts": rate_of_puts,
        "found": [made.get(key) for key in put + others],
        "rate": made.collision_rate,
    }
    assert len(put) == slots
    assert ask(reference, 24 * slots, put, put + others) == expected


def test_a_key_put_again(reference: Reference) -> None:
    """CLN-1: replaced while there is room, its probes counted."""
    put = [b"%d" % (i % 40) for i in range(200)]
    made = SkimpyOffsetMap(24 * 50, "md5")
    for offset, key in enumerate(put):
        made.put(key, offset)
    theirs = ask(reference, 24 * 50, put, put[:60])
    assert (theirs["size"], theirs["rate_of_puts"]) == (made.size, made.collision_rate)
    assert theirs["found"] == [made.get(key) for key in put[:60]]
