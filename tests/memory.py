"""Directories for tests that sync by the thousand: in memory, where possible; on a disk they only wait."""

import os
import shutil

MEMORY = "/dev/shm"


def memory(needed_bytes: int = 0) -> str | None:
    """The directory in memory; None where there is none, or less room in it."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= needed_bytes:
        return MEMORY
    return None
