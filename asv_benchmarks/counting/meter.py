"""The meter: requests to callgrind from Python, through a library of a few lines that is compiled when it is wanted."""

import ctypes
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

SOURCE = Path(__file__).with_name("meter.c")


def compile_meter(directory: Path) -> Path:
    """Return the library, compiled into a directory; RuntimeError without a C compiler."""
    named = os.environ.get("CC") or sysconfig.get_config_var("CC") or ""
    compiler = named.split() if named and shutil.which(named.split()[0]) else [shutil.which("cc") or "gcc"]
    library = directory / "meter.so"
    try:
        subprocess.run([*compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"the meter cannot be compiled: {error}") from error
    return library


class Meter:
    """Starts and stops counting; each `dump` writes what was counted since `zero` to a file. Nothing off valgrind."""

    def __init__(self, library: Path) -> None:
        held = ctypes.PyDLL(str(library))
        self.is_watched = bool(held.meter_watched())
        self.start, self.stop = held.meter_start, held.meter_stop
        self.zero, self.dump = held.meter_zero, held.meter_dump
