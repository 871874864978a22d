"""Of damaged files both dump tools print the same, complain of the same, and die of the same.

Files of the golden capture are cut, changed, lengthened and shortened inside, at random. DUMP-5 to DUMP-8, DUMP-10,
DUMP-11, DUMP-14.
"""

import io
import os
import shutil
from pathlib import Path
from random import Random

import pytest

from kafkalog.errors import KafkalogError
from kafkalog.tools.dump.files import DumpOptions, dump_files
from tests.golden_cases import Case, each_partition
from tests.interop.reference import Reference, Refused

ROUNDS = int(os.environ.get("DAMAGE_ROUNDS", "4"))
LARGEST = 60_000
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
LOG_RUNS = {
    ("--deep-iteration", "--print-data-log"): DumpOptions(print_data_log=True),
    ("--deep-iteration",): DumpOptions(deep_iteration=True),
    (): DumpOptions(),
}
INDEX_RUNS = {
    (): DumpOptions(),
    ("--verify-index-only",): DumpOptions(verify_index_only=True),
    ("--index-sanity-check",): DumpOptions(index_sanity_check=True),
}


def damaged(data: bytes, random: Random) -> bytes:
    """The bytes with one to four things done to them."""
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        if not data:
            break
        at = random.randrange(len(data)) if random.random() < 0.5 else random.randrange(min(len(data), 200))
        what = random.random()
        if what < 0.6:
            byte = random.choice([0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1, random.randrange(256)])
            data = data[:at] + bytes([byte]) + data[at + 1 :]
        elif what < 0.8:
            data = data[:at]
        elif what < 0.9:
            data += random.choice([bytes(random.randrange(1, 100)), random.randbytes(random.randrange(1, 50))])
        else:
            data = data[:at] + data[at + random.randrange(1, 40) :]
    return data


def assert_same(reference: Reference, path: Path, flags: tuple[str, ...], options: DumpOptions) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    died = False
    try:
        dump_files([str(path)], out, options, err=err)
    except KafkalogError:
        died = True
    try:
        expected, complaints, killed = reference.dump_outcome(*flags, "--files", str(path))
    except Refused as refused:
        # it believes a record count, or the size of a block; the next question finds it well
        assert refused.kind in ("OutOfMemoryError", "SnappyError")
        return
    if killed is not None and "OutOfMemoryError" in killed:
        return
    assert out.getvalue() == expected
    assert died == (killed is not None), killed
    if not died:
        assert err.getvalue() == complaints


@each_partition("logdir", "crash", "legacy")
def test_damaged_files(reference: Reference, tmp_path: Path, case: Case) -> None:
    random = Random(case.id)
    files = [case.path(name) for name in case.files if name.endswith(SUFFIXES)]
    sizes = [path.stat().st_size for path in files]
    if max(sizes) > LARGEST or not any(sizes):
        pytest.skip("its files are too large for many rounds, or all empty")
    for _ in range(ROUNDS):
        copies = [Path(shutil.copy(path, tmp_path)) for path in files]
        victim = random.choice([path for path in copies if path.stat().st_size])
        victim.write_bytes(damaged(victim.read_bytes(), random))
        base = victim.name.split(".")[0]
        for path in (one for one in copies if one.name.startswith(base)):
            runs = LOG_RUNS if path.suffix == ".log" else INDEX_RUNS
            flags = random.choice(list(runs)) if path.suffix in (".log", ".index", ".timeindex") else ()
            assert_same(reference, path, flags, runs[flags])
