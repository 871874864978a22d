"""The cases of the vector `recovery`: a partition of the capture, damaged step by step."""

import shutil
from pathlib import Path
from typing import Any

from tests import golden_cases

ARCHIVE_KIND = "logdir"


def damaged_copy(entry: dict[str, Any], to: Path) -> Path:
    """A copy of the case's partition directory under `to`, with the case's steps applied."""
    case = next(one for one in golden_cases.partitions(ARCHIVE_KIND) if one.name == entry["partition"])
    target = to / case.name
    shutil.copytree(case.directory, target)
    for step in entry["steps"]:
        apply(step, target / step["file"])
    return target


def apply(step: dict[str, Any], path: Path) -> None:
    """One step of damage."""
    if step["op"] == "delete":
        path.unlink()
    elif step["op"] == "write":
        path.write_bytes(bytes.fromhex(step["hex"]))
    else:
        data = bytearray(path.read_bytes())
        if step["op"] == "flip":
            data[step["pos"]] ^= step["xor"]
        elif step["op"] == "truncate":
            del data[step["size"] :]
        elif step["op"] == "append":
            data += bytes.fromhex(step["hex"])
        else:
            raise AssertionError(step)
        path.write_bytes(data)


def log_sizes(listed: list[list[Any]]) -> dict[str, int]:
    """Name and size of the segments among [name, size, ...] rows."""
    return {row[0]: row[1] for row in listed if row[0].endswith(".log")}
