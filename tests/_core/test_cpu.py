"""Every kernel can be forced by KAFKALOG_CPU, and a processor without the fast instructions runs the portable one."""

import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random
from typing import Any

import crc32c as pypi_crc32c
import pytest

from kafkalog._core.bytes import crc
from tests.trees import ROOT

BYTES = Random(31).randbytes(100_003)
PIECES = [BYTES[n:] for n in range(0, len(BYTES), 9973)]
CRC_OF = {
    "portable": ["portable"], "sse4.2": ["sse4.2"], "avx2": ["avx2", "sse4.2"], "avx512": ["avx512"],
    "armv8": ["armv8"],
}  # fmt: skip
"""The implementations of the checksums at each level; the second one where the first needs more than the level says."""
MODELS = {"qemu64,-sse4.2": "portable", "Nehalem,-pclmulqdq": "portable", "Westmere": "sse4.2", "max": "avx2"}
"""Processors that the emulator knows, and the best level of each; it has no AVX-512 and the oldest only without AVX."""

LOOK = """
import json, random
from kafkalog._core.bytes import crc
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog._core.keys.given_keys import hash_keys
from kafkalog._core.keys.key_walk import hash_key

data = random.Random(31).randbytes(100_003)
pieces = [data[n:] for n in range(0, 100_003, 9973)]
made = SkimpyOffsetMap(24 * 40_000, secret=bytes(range(16)))
for size in range(1, 90):
    made.put_run(data[: size * 100], size, size * 1000)
keys = [data[at : at + size] for size in range(90) for at in range(0, 1100, 100)]
keys += random.Random(32).sample(keys, 200)
secret = bytes(range(16))
hashes = memoryview(hash_keys(secret, keys)).cast("Q").tolist()
print(json.dumps({
    "level": crc.instruction_level(), "crc": crc.implementation(), "all": crc.implementations(),
    "crc32c": [crc.crc32c(one) for one in pieces], "crc32": [crc.crc32(one) for one in pieces],
    "found": [made.get(data[at : at + size]) for size in range(1, 90) for at in range(0, size * 100, size)],
    "hashed": [hashed == hash_key(secret, one) for one, hashed in zip(keys, hashes, strict=True)],
}))
"""


def looked(*command: str, level: str = "") -> dict[str, Any]:
    """Return the report of a process started with that level, and maybe by an emulator."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    done = subprocess.run(
        [*command, sys.executable, "-c", LOOK], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "KAFKALOG_CPU": level, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def check(report: dict[str, Any]) -> None:
    """The checksums are right, every key of the map has the offset of its last equal, and keys hash alike together."""
    assert report["crc"] == report["all"][0] and report["crc"] in CRC_OF[report["level"]]
    assert report["crc32c"] == [pypi_crc32c.crc32c(one) for one in PIECES]
    assert report["crc32"] == [zlib.crc32(one) for one in PIECES]
    assert len(report["hashed"]) == 1190 and all(report["hashed"])
    last: dict[bytes, int] = {}
    keys = [(BYTES[at * size : (at + 1) * size], size * 1000 + at) for size in range(1, 90) for at in range(100)]
    last.update(keys)
    assert report["found"] == [last[key] for key, _ in keys]


@pytest.mark.parametrize("level", crc.instruction_levels())
def test_each_level_can_be_forced(level: str) -> None:
    """No level above the named one is used, and none that the processor has not."""
    levels = crc.instruction_levels()
    best = looked()["level"]
    report = looked(level=level)
    assert report["level"] == min(level, best, key=levels.index)
    check(report)


def has(level: str) -> bool:
    """Return True if the operating system reports that the processor has what that level needs."""
    if level == "armv8":
        return bool(ctypes.CDLL(None).getauxval(16) & 1 << 7)  # AT_HWCAP, HWCAP_CRC32
    needed = {"portable": "", "sse4.2": "sse4_2 pclmulqdq", "avx2": "sse4_2 pclmulqdq avx2"}
    needed["avx512"] = f"{needed['avx2']} avx512f avx512vl vpclmulqdq"
    return set(needed[level].split()) <= flags()


def flags() -> set[str]:
    """Return the flags that Linux reports for an x86_64 processor."""
    report = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return set() if report is None else set(report[1].split())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux what the processor has")
def test_the_best_that_the_processor_has_is_used() -> None:
    """On aarch64 the kernel of the CRC32 instructions, which an emulated processor has, too."""
    report = looked()
    assert report["level"] == [level for level in crc.instruction_levels() if has(level)][-1]
    assert ("avx2" in report["all"]) == (platform.machine() == "x86_64" and has("avx2") and "vpclmulqdq" in flags())
    check(report)


def test_levels_of_this_architecture() -> None:
    known = {"x86_64": ("portable", "sse4.2", "avx2", "avx512"), "aarch64": ("portable", "armv8")}
    assert crc.instruction_levels() == known.get(platform.machine(), ("portable",))
    assert crc.instruction_level() in crc.instruction_levels()


def test_an_unknown_level_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import kafkalog; kafkalog.open('nowhere')"], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "KAFKALOG_CPU": "abacus"},
    )  # fmt: skip
    assert done.returncode == 1
    assert "KAFKALOG_CPU='abacus' names none" in done.stderr and "portable" in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="emulates older processors of x86_64")
@pytest.mark.parametrize("model", MODELS)
def test_a_processor_without_the_fast_instructions(model: str) -> None:
    """On an emulated processor a missing fast instruction ends the process."""
    emulator = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("no emulator of x86_64 here (Debian's package qemu-user-static has one)")
    report = looked(emulator, "-cpu", model)
    assert report["level"] == MODELS[model]
    check(report)
