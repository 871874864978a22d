"""Forecast of the next opening for writing of repaired partitions: the bytes that recovery will cut and keep."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from kafkalog.errors import CorruptCheckpoint, KafkalogError, NotAPartition
from kafkalog.storage.names import parse_dir
from kafkalog.storage.recovery.next_opening import Cut, foresee_cuts
from kafkalog.tools.repair.plan import Change
from kafkalog.tools.verify.checkpoints import was_closed_cleanly
from kafkalog.tools.verify.report import printable
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import LOG_START_FILE, RECOVERY_POINT_FILE, OffsetCheckpoint, parse_offset
from kafkalog.util.fileio import FileSystem


class NextOpening(NamedTuple):
    """The effect of the next opening for writing on a partition; `recovery_point` is None after a clean close."""

    path: str
    recovery_point: int | None
    cuts: tuple[Cut, ...]

    @property
    def what(self) -> str:
        """The effect as text."""
        since = "" if self.recovery_point is None else f"recovers from {_place(self.recovery_point)} and "
        if not self.cuts:
            return f"the next opening for writing {since}cuts nothing"
        return f"the next opening for writing {since}will cut " + "; ".join(_describe_cut(cut) for cut in self.cuts)

    def as_json(self) -> dict[str, object]:
        """Return the effect as plain values, with `type` "opening"."""
        cuts = [
            {**cut._replace(loss=None)._asdict(), "kept": None if cut.loss is None else cut.loss.sound._asdict()}
            for cut in self.cuts
        ]
        for cut in cuts:
            del cut["loss"]
        return {"type": "opening", "path": self.path, "recovery_point": self.recovery_point, "cuts": cuts}


def opening_lines(openings: Iterable[NextOpening]) -> Iterator[str]:
    """Yield one line for each partition that will be cut, and one for each group of others with the same effect."""
    for (_, what), group in groupby(sorted(openings, key=_order), _order):
        same = list(group)
        if len({one.what for one in same}) == 1:
            what = same[0].what
        more = f" and {len(same) - 1} more" if len(same) > 1 else ""
        yield printable(f"next     {same[0].path}{more}: {what}")


def _order(opening: NextOpening) -> tuple[bool, str]:
    """Return the order of a line, and its text; all partitions that are recovered without a cut share one."""
    if opening.cuts or not opening.recovery_point:
        return bool(opening.cuts), opening.what
    return False, "the next opening for writing recovers from their recovery points on and cuts nothing"


def next_openings(
    directory: str,
    partitions: Sequence[str],
    changes: Sequence[Change],
    ends: Mapping[str, Mapping[int, int]],
    fs: FileSystem,
) -> list[NextOpening]:
    """Return the effects of the next opening on partitions that were not closed cleanly, or have one of the changes.

    The changes are planned, or done. `ends` has the sound segments of each partition, as for `foresee_cuts`. A
    partition that cannot be read is left out: it is reported elsewhere.
    """
    is_clean = was_closed_cleanly(directory, fs) and all(one.kind == "rebuild" for one in changes)
    changed = {one.path for one in changes}
    touched = {os.path.dirname(path) for path in changed}
    candidates = [path for path in partitions if not is_clean or path in touched]
    if not candidates:
        return []
    points, starts = (_offsets_after(directory, name, changes, fs) for name in (RECOVERY_POINT_FILE, LOG_START_FILE))
    found = []
    for path in candidates:
        try:
            key, kind = parse_dir(os.path.basename(path))
        except NotAPartition:
            continue
        if kind:
            continue
        point, start = points.get(key, 0), starts.get(key, 0)
        try:
            cuts = foresee_cuts(
                path, fs, is_clean=is_clean, recovery_point=point, log_start_offset=start, ends=ends.get(path, {})
            )
        except (KafkalogError, OSError):
            continue
        left = tuple(cut for cut in cuts if not _is_repaired(cut, changed))
        found.append(NextOpening(path, None if is_clean else point, left))
    return found


def _is_repaired(cut: Cut, changed: set[str]) -> bool:
    """Return True if the repair changes the segment itself, or builds the index whose absence makes recovery read it.
    """
    return cut.path in changed or f"{os.path.splitext(cut.path)[0]}.index" in changed and not cut.later


def _offsets_after(
    directory: str, name: str, changes: Sequence[Change], fs: FileSystem
) -> dict[TopicPartition, int]:
    """Return a checkpoint's offsets after the repair; none if it cannot be read."""
    path = os.path.join(directory, name)
    data = next((one.data for one in changes if one.path == path and one.data is not None), None)
    if data is None:
        try:
            return OffsetCheckpoint(path, fs=fs).read() if fs.exists(path) else {}
        except (CorruptCheckpoint, OSError):
            return {}
    return dict(parse_offset(line.split()) for line in data.decode().splitlines()[2:])


def _place(point: int) -> str:
    return f"offset {point} on" if point else "its beginning on"


def _describe_cut(cut: Cut) -> str:
    later = f", {cut.later} later segment{'' if cut.later == 1 else 's'} with it" if cut.later else ""
    kept = "nothing sound follows it" if cut.loss is None else f"and keep {cut.loss.sound} after it"
    return f"{cut.path} at byte {cut.position}, offset {cut.offset} ({cut.reason}{later}), {kept}"
