"""Machine, file system and versions that benchmark figures depend on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from kafkalog._version import version
from kafkalog.inspect.width import escape_text
from kafkalog.util.fileio import OS
from kafkalog.util.filesystems import file_system_of
from kafkalog.util.readahead import usable_cores

if TYPE_CHECKING:
    from kafkalog.bench.settings import Settings

CPUINFO: Final = "/proc/cpuinfo"
_READ_BYTES: Final = 1 << 16
_ASKED: Final = 10_000


@dataclass(frozen=True)
class Surroundings:
    """The machine and the log's directory. `clock_ns` is the time of one reading of the clock."""

    version: str
    python: str
    system: str
    cpu: str
    cores: int
    directory: str
    file_system: str
    clock_ns: float

    @property
    def title(self) -> str:
        """One-line summary."""
        return f"kafkalog {self.version}, Python {self.python}, {self.cpu}, {self.cores} cores, {self.file_system}"


def cpu_model(text: str) -> str:
    """Return the processor's name from the text of /proc/cpuinfo; "" if it has none."""
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip().lower() in ("model name", "cpu model", "hardware"):
            return " ".join(value.split())
    return ""


def surroundings(directory: str) -> Surroundings:
    """Return the properties of this machine and of `directory`."""
    try:
        with OS.open_file(CPUINFO, "r") as file:
            model = cpu_model(file.pread(_READ_BYTES, 0).decode(errors="replace"))
    except OSError:
        model = ""
    began = perf_counter_ns()
    for _ in range(_ASKED):
        perf_counter_ns()
    return Surroundings(
        version=version,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        cpu=f"{model} ({platform.machine()})" if model else platform.machine(),
        cores=usable_cores(),
        directory=os.path.realpath(directory),
        file_system=str(file_system_of(directory)),
        clock_ns=(perf_counter_ns() - began) / _ASKED,
    )


def header(settings: Settings, around: Surroundings) -> Iterator[str]:
    """Yield the lines before the results, "name: value"."""
    raw = settings.num * settings.record_bytes
    yield f"kafkalog:    {around.version}, Python {around.python}, {around.system}"
    yield f"CPU:         {around.cpu}, {around.cores} core{'' if around.cores == 1 else 's'}"
    yield f"Directory:   {escape_text(around.directory)}"
    yield f"File system: {escape_text(around.file_system)}"
    if settings.only_reads:
        yield f"Entries:     at most {settings.num:,} of those that are there, read only"
    else:
        yield f"Keys:        {settings.key_size:,} bytes each"
        yield f"Values:      {settings.value_size:,} bytes each, of which a codec can save half"
        yield f"Entries:     {settings.num:,}, in batches of {settings.batch_size:,}; seed {settings.seed}"
        yield f"Raw size:    {raw / 1e6:,.1f} MB"
        yield f"Compression: {settings.compression}"
    if settings.threads > 1:
        yield f"Threads:     {settings.threads}, which share what is read"
    cache = "pages are dropped before each read" if settings.cold else "as it is; `cached` says how much was in memory"
    yield f"Page cache:  {cache}"
    yield f"Clock:       {around.clock_ns:,.0f} ns for each reading, one for each operation that is timed"
