"""Opening and closing a clean data directory of many partitions: CPU and memory of a process that does nothing else."""

import json
import shutil
import statistics
import subprocess
import sys
import warnings
from pathlib import Path

import kafkalog
from asv_benchmarks.benchmarks.common import values
from asv_benchmarks.measure import Row
from kafkalog.manager.log_dir import MARKER
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE

PARTITIONS, SEGMENTS, ROUNDS = 1000, 10, 3
# the CPU time counts from the start of the process: the interpreter and the imports are in it
OPEN = """
import json, re, sys, time
from kafkalog.manager.log_manager import LogManager
from kafkalog.util.descriptors import DESCRIPTORS
manager = LogManager.open([sys.argv[1]])
result = {"open": time.process_time(), "descriptors": len(DESCRIPTORS)}
assert [len(log.segments) for log in manager.logs.values()] == [int(sys.argv[3])] * int(sys.argv[2])
manager.close()
result["close"] = time.process_time() - result["open"]
# not ru_maxrss, which begins with that of the process that started this one
result["peak_mb"] = int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 1024
print(json.dumps(result))
"""
# what an opening that looks into each file costs at least
TOUCH = """
import json, os, sys, time
for place in os.scandir(sys.argv[1]):
    if place.is_dir():
        for file in os.scandir(place.path):
            descriptor = os.open(file.path, os.O_RDONLY)
            os.fstat(descriptor)
            os.pread(descriptor, 8, 0)
            os.close(descriptor)
print(json.dumps({"open": time.process_time()}))
"""


def rows(directory: Path) -> list[Row]:
    """Return the rows of 1,000 cleanly closed partitions with 10 segments each, within the process's limit of files."""
    make(directory, PARTITIONS, SEGMENTS)
    result = [_run(OPEN, directory) for _ in range(ROUNDS)]
    touched = statistics.median(_run(TOUCH, directory)["open"] for _ in range(ROUNDS))
    what = f"{PARTITIONS:,} partitions of {SEGMENTS} segments"
    middle = {key: statistics.median(one[key] for one in result) for key in result[0]}
    shutil.rmtree(directory)
    return [
        Row(f"open {what}", middle["open"], 2, "s", True, {"a look into each file, in Python": touched}),
        Row(f"close {what}", middle["close"], 1, "s", True),
        Row(f"memory of {what}", middle["peak_mb"], 200, "MB", True),
    ]


def _run(script: str, directory: Path) -> dict[str, float]:
    command = [sys.executable, "-c", script, str(directory), str(PARTITIONS), str(SEGMENTS)]
    result: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return result


def make(directory: Path, partitions: int, segments: int) -> None:
    """Create `partitions` directories with the same files, as cleanly closed logs leave them."""
    first, some = directory / "bench-0", values(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # segments this small are for tests only
        with kafkalog.open(first, "a", internal_segment_bytes=20_000) as log:
            while len(log.segments) < segments:
                log.append(some)
    for number in range(1, partitions):
        shutil.copytree(first, directory / f"bench-{number}")
    (directory / CLEAN_SHUTDOWN_FILE).write_bytes(MARKER)
