"""Where the files of tests lie that sync by the thousand: in memory, where that can be; on a disk they only wait."""

import os
import shutil

MEMORY = "/dev/shm"
NEEDED_BYTES = 1 << 29


def memory() -> str | None:
    """The directory in memory; None where there is none, or too little room in it."""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= NEEDED_BYTES:
        return MEMORY
    return None
