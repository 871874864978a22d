"""Options of the dump tool in random company, over files of the capture: the same text, complaints and kind of end."""

import os
import random
from pathlib import Path

import pytest

from kafkalog.cli.main import run
from tests.golden_cases import Case, partitions
from tests.interop.reference import Reference, Refused

ROUNDS = int(os.environ.get("OPTION_ROUNDS", "60"))
LARGEST = 60_000
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "checkpoint")
FLAGS = (
    "--deep-iteration",
    "--print-data-log",
    "--skip-record-metadata",
    "--verify-index-only",
    "--index-sanity-check",
)
READERS = (
    ("--offsets-decoder",),
    ("--transaction-log-decoder",),
    ("--cluster-metadata-decoder",),
    ("--remote-log-metadata-decoder",),
    ("--share-group-state-decoder",),
    *(
        (f"--{part}-decoder-class", f"org.apache.kafka.tools.api.{kind}Decoder")
        for part in ("key", "value")
        for kind in ("String", "Integer", "Long")  # not Default: it prints an address in memory
    ),
)


def candidates() -> list[tuple[Case, str]]:
    """(partition, path in the data directory) of every file that is not too large."""
    return [
        (case, str(case.path(name)))
        for kind in ("logdir", "legacy", "crash")
        for case in partitions(kind)
        for name in case.files
        if name.endswith(SUFFIXES) and case.path(name).stat().st_size <= LARGEST
    ]


def arguments(dice: random.Random, files: list[str]) -> list[str]:
    chosen = [flag for flag in FLAGS if dice.random() < 0.3]
    if dice.random() < 0.5:
        chosen += dice.choice(READERS)
    if dice.random() < 0.3:
        chosen += ["--max-bytes", str(dice.choice([0, 1, 61, 100, 500, dice.randrange(5000), 2**31 - 1]))]
    if dice.random() < 0.3:
        chosen += ["--max-message-size", str(dice.choice([0, 17, 100, 4096, dice.randrange(2000), 5 << 20]))]
    return [*chosen, "--files", ",".join(files)]


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_options(reference: Reference, seed: int, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    dice = random.Random(seed)
    there = candidates()
    if not there:
        pytest.skip("no partition in the capture")
    args = arguments(dice, [dice.choice(there)[1] for _ in range(dice.choice([1, 1, 1, 2, 3]))])
    try:
        expected, complaints, killed = reference.dump_outcome(*args)
    except Refused as refused:
        pytest.skip(f"the reference itself gave up: {refused}")
    capfdbinary.readouterr()
    status = run(["dump", *args])
    done = capfdbinary.readouterr()
    assert done.out == expected, args
    assert (status != 0) == (killed is not None), (args, killed, done.err)
    if killed is None:
        assert done.err == complaints, args
    else:
        assert done.err and b"Traceback" not in done.err


def test_the_files_are_those_of_the_capture() -> None:
    assert {Path(path).suffix for _, path in candidates()} >= {".log"} or not candidates()
