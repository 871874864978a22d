"""Random changes of key indexes and batches, given to the target of the fuzzer: never an error that is not typed."""

import os
import random

from fuzz.keys import run
from fuzz.seeds import key_indexes

TIMES = int(os.environ.get("KAFKALOG_FUZZ", "1"))


def test_changed_indexes_and_batches() -> None:
    seeds, rng = key_indexes(), random.Random(11)
    for seed in seeds:
        run(memoryview(seed))
    for _ in range(3000 * TIMES):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 4)):
            if data:
                at = rng.randrange(min(len(data), rng.choice([200, 5000, 1 << 20])))
                data[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, data[at] ^ (1 << rng.randrange(8))])
        cut = rng.randrange(len(data) + 1) if rng.random() < 0.2 else len(data)
        run(memoryview(bytes(data[:cut])))
