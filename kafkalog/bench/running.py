"""Running benchmarks, one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalog.bench.data import Data
from kafkalog.bench.meter import Deadline, Meter
from kafkalog.bench.place import Place
from kafkalog.bench.reading import read
from kafkalog.bench.result import Result, Results
from kafkalog.bench.settings import FILLS, READS, Settings
from kafkalog.bench.surroundings import Surroundings, surroundings
from kafkalog.bench.writing import fill
from kafkalog.errors import IllegalArgument
from kafkalog.log.open import open as open_log
from kafkalog.util.keywords import unknown_keyword
from kafkalog.util.readahead import usable_cores

if TYPE_CHECKING:
    from kafkalog.log.log import Log

_SETTINGS: Final = tuple(one.name for one in fields(Settings) if one.name not in ("benchmarks", "only_reads"))
_Begun = Callable[[Settings, Surroundings], object]


def run(
    directory: str | os.PathLike[str] | None = None,
    benchmarks: str | Iterable[str] | None = None,
    *,
    use_existing: str | os.PathLike[str] | None = None,
    keep: bool = False,
    begun: _Begun | None = None,
    tell: Callable[[Result], object] | None = None,
    **settings: Any,
) -> Results:
    """Run benchmarks on this machine; `benchmarks` are names, or one comma-separated text, None all.

    Logs are written to `directory`, which must be missing or empty; default: a new temporary one. They are removed at
    the end, also after an error, unless `keep`. A benchmark that reads uses the log that was filled last, or one that
    is filled for it. `use_existing` is a partition's directory (or a URL) instead: then only benchmarks that read are
    allowed, its log is opened for reading, and nothing is written. `begun` is called with settings and machine before
    the first benchmark, `tell` with each result; `settings` are the fields of `Settings` by name.

    Raises IllegalArgument, ConfigError and UnsupportedCompression before anything is created; PartitionNotFound,
    NotAPartition; StorageError if the disk fails or is full; TypeError for an unknown keyword.

    >>> found = run(benchmarks="fillbatch,readseq", num=1000)
    >>> found["fillbatch"].ops, found["readseq"].ops, found["readseq"].micros_per_op > 0
    (10, 1000, True)
    """
    if unknown := {name: value for name, value in settings.items() if name not in _SETTINGS}:
        raise unknown_keyword("run", unknown, ("benchmarks", "use_existing", "keep", "begun", "tell", *_SETTINGS))
    given = dict(settings)
    if benchmarks is not None:
        names = benchmarks.split(",") if isinstance(benchmarks, str) else benchmarks
        given["benchmarks"] = tuple(name.strip() for name in names)
    if use_existing is None:
        return _run(Settings(**given), directory, None, keep, begun, tell)
    if directory is not None or keep:
        what = "a directory to write to" if directory is not None else "keep"
        hint = "on a log that is there nothing is written"
        raise IllegalArgument(f"{what} is given beside an existing log", hint=hint)
    given.setdefault("benchmarks", tuple(name for name in Settings().benchmarks if name in READS))
    return _run(Settings(**given, only_reads=True), None, os.fspath(use_existing), keep, begun, tell)


def _run(
    settings: Settings,
    directory: str | os.PathLike[str] | None,
    existing: str | None,
    keep: bool,
    begun: _Begun | None,
    tell: Callable[[Result], object] | None,
) -> Results:
    results: list[Result] = []
    with _placed(directory, keep=keep) as place:
        if existing is None:
            _warm_up(place, settings)
            bench: Callable[[str], Result] = _OnOurs(place, settings).bench
        else:
            open_log(existing).close()  # an invalid log is reported before the header
            _warm_up(place, settings)
            bench = partial(_read_existing, existing, settings)
        around = surroundings(place.path if existing is None else existing)
        if begun is not None:
            begun(settings, around)
        for name in settings.benchmarks:
            results.append(bench(name))
            if tell is not None:
                tell(results[-1])
    return Results(settings, around, tuple(results))


@contextmanager
def _placed(directory: str | os.PathLike[str] | None, *, keep: bool) -> Iterator[Place]:
    """Yield a place for logs, which is removed at the end, also after an error."""
    place = Place(directory, keep=keep)
    try:
        place.make()
        yield place
    finally:
        try:
            place.remove()
        except BaseException:  # a signal that came before `remove` deferred it
            place.remove()
            raise


def _read_existing(path: str, settings: Settings, name: str) -> Result:
    return read(name, path, settings, lambda: Deadline(settings.seconds), is_ours=False)


def _warm_up(place: Place, settings: Settings) -> None:
    """Run each benchmark on a record or two, so that no figure includes the imports of a first use."""
    tiny = replace(settings, num=min(settings.num, 2), seconds=None, cold=False)
    ours = _OnOurs(place, tiny)
    for name in dict.fromkeys(settings.benchmarks):
        ours.bench(name)
    place.drop_logs(even_kept=True)


class _OnOurs:
    """Benchmarks on logs that they write themselves."""

    def __init__(self, place: Place, settings: Settings) -> None:
        self._place = place
        self._settings = settings
        self._data = Data(settings)
        self._filled = ""

    def bench(self, name: str) -> Result:
        """Run one benchmark and return its result."""
        if name in FILLS:
            return self._fill(name)
        if name == "compact":
            try:
                return compact(self._place.new_log(name), self._settings, self._data)
            finally:
                self._place.drop_logs(but=self._filled)
        notes: tuple[str, ...] = ()
        if not self._filled:
            self._fill("fillbatch")
            notes = ("of a log filled for it",)
        if name == "recover":
            found = recover(self._place, self._filled)
        else:
            settings = self._settings
            found = read(name, self._filled, settings, lambda: Deadline(settings.seconds), is_ours=True)
        return replace(found, notes=(*found.notes, *notes))

    def _fill(self, name: str) -> Result:
        self._filled = ""
        self._place.drop_logs()
        path = self._place.new_log(name)
        found = fill(name, path, self._settings, self._data, Deadline(self._settings.seconds))
        self._filled = path
        return found


def recover(place: Place, path: str) -> Result:
    """Time the opening of an unclosed log for writing: every byte of it is checked, on all cores."""
    place.forget_clean_end()
    meter = Meter(Deadline(None))
    opened: list[Log] = []
    try:
        meter.once(lambda: opened.append(open_log(path, "a")))
        meter.records, meter.bytes = opened[0].end_offset, opened[0].size
    finally:
        for log in opened:
            log.close()
    cores = usable_cores()
    return Result.of("recover", "recovery", 1, [meter], notes=(f"{cores} core{'' if cores == 1 else 's'}",))


def compact(path: str, settings: Settings, data: Data) -> Result:
    """Time one clean of a log with two records of each key, created in the empty directory `path`."""
    keys = max(1, settings.num // 2)
    fill("fillbatch", path, settings, data, Deadline(settings.seconds), keys=keys)
    meter = Meter(Deadline(None))
    with open_log(path, "a") as log:
        meter.records, meter.bytes = log.end_offset, log.size
        meter.once(lambda: log.compact(roll=True))
        left = sum(1 for _ in log)
    return Result.of("compact", "clean", 1, [meter], notes=(f"{left:,} records left",))
