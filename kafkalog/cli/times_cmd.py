"""`kafkalog times`: build, list and drop time ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import click

from kafkalog.cli.sidecar_commands import Sidecars, add_commands

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.time_ranges.manage import TimeRangesInfo
    from kafkalog.time_ranges.place import TimeRangesPlace


@click.group("times", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Build, list and drop time ranges, so that queries with a time range read only what may match.

    Time ranges are the smallest and largest times of the pieces of a segment, in a file of about 0.01 % of its size. A
    broker ignores the files beside its segments, and a file that no longer fits is never used. With --store they lie in
    a separate directory, which `kafkalog sql --time-ranges DIR` uses, and the data directories are only read, even
    beside a running broker.
    See docs/sql.md.
    """


def _open(path: str, mode: str, store: str | None) -> Log:
    import kafkalog

    return kafkalog.open(path, cast('Literal["r", "a"]', mode))


def _place(log: Log, store: str | None) -> TimeRangesPlace:
    from kafkalog.time_ranges.place import TimeRangesPlace
    from kafkalog.util.fileio import OS

    return TimeRangesPlace(log._source.path, store, log._source.fs if log.mode == "a" else OS)


def _build(log: Log, store: str | None, rebuild: bool) -> tuple[TimeRangesInfo, ...]:
    from kafkalog.time_ranges.manage import build_ranges

    return build_ranges(log._source, _place(log, store), rebuild=rebuild)


def _list(log: Log, store: str | None) -> tuple[TimeRangesInfo, ...]:
    from kafkalog.time_ranges.manage import list_ranges

    return list_ranges(log._source, _place(log, store))


_TIMES = Sidecars(
    "times",
    "time ranges",
    "pieces",
    of_last="The last segment gets them too if nothing has been written to it for two seconds, and is listed then. ",
    dropped="queries read",
    opens=_open,
    build=_build,
    list=_list,
    drop=lambda log, store: _place(log, store).remove_others(),
)
add_commands(command, _TIMES)
