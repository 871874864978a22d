"""The damage of a log's segments as `verify` finds it, for statistics."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kafkalog.inspect.damage import DamagedPlace, SegmentDamage
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE, log_file_name
from kafkalog.tools.verify.report import Findings, Severity
from kafkalog.tools.verify.segment import SegmentPass
from kafkalog.util.os_errors import os_errors

if TYPE_CHECKING:
    from kafkalog.inspect.damage import Locate
    from kafkalog.reading.source import LogSource
    from kafkalog.storage.segments import AnySegment


def damage_locator(engine: LogSource) -> Locate:
    """Return a function that finds the damage of a segment of the log, for `survey`.

    In a directory that was closed cleanly, bytes after the last intact batch are damage too.
    """
    is_clean = engine.fs.exists(os.path.join(os.path.dirname(engine.path), CLEAN_SHUTDOWN_FILE))

    def locate(segment: AnySegment, next_base_offset: int | None) -> SegmentDamage:
        path = os.path.join(engine.path, log_file_name(segment.base_offset))
        findings = Findings(path)
        is_last = next_base_offset is None
        with os_errors("read the segment", path), engine.fs.open_file(path, "r") as file:
            facts = SegmentPass(
                file, segment.base_offset, findings, fs=engine.fs, length=file.size(), is_last=is_last,
                is_live=is_last and not is_clean, is_clean=is_clean, next_base_offset=next_base_offset,
            ).run()  # fmt: skip
        places = [
            DamagedPlace(
                path, one.position or 0, one.size or 0, one.last_sound_offset, one.next_sound_offset, one.kind,
                one.where, one.what,
            )
            for one in findings.all()
            if one.severity == Severity.DAMAGE or is_clean and one.kind.startswith("tail-")
        ]  # fmt: skip
        if next_base_offset is not None and facts.batches and facts.next_offset > next_base_offset:
            last, what = facts.next_offset - 1, f"the segment ends at offset {facts.next_offset - 1}"
            what += f", but the next one begins at {next_base_offset}"
            places.append(
                DamagedPlace(path, facts.good_end, 0, last, None, "overlap", f"position {facts.good_end:,}", what)
            )
        return SegmentDamage(tuple(places), tuple(facts.kept))

    return locate
