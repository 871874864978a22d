"""Damage in the segments of a backup being created: bytes are copied as they are, and the damage is noted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from kafkalog.backup.in_progress import BackupInProgress
from kafkalog.backup.manifest import Manifest, StoredFile
from kafkalog.errors import CorruptRecord
from kafkalog.storage.names import INDEX_SUFFIX, LOG_SUFFIX, is_log_file, parse_base_offset
from kafkalog.tools.verify.index import read_index
from kafkalog.tools.verify.report import Finding, Findings, Severity
from kafkalog.tools.verify.segment import SegmentPass
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors

DAMAGED: Final = "damaged: "
"""Prefix of a manifest's notes of damage; the file's path in the backup follows."""
_HINT: Final = (
    "`kafkalog export --format jsonl --on-damage skip` exports the sound records; `kafkalog repair --excise --apply` "
    "removes the damaged bytes from the log; `kafkalog backup` copies all bytes unchanged"
)


def logs_by_directory(files: Iterable[StoredFile]) -> Iterator[tuple[str, list[str]]]:
    """Yield the directories of a backup's partitions with the names of their segment files; `files` go by path."""
    for name, group in groupby(files, lambda file: os.path.dirname(file.path)):
        logs = [log for file in group if is_log_file(log := os.path.basename(file.path))]
        if logs:
            yield name, logs


def damage_of(
    backup: BackupInProgress, name: str, logs: Sequence[str], source: str, fs: FileSystem, *, is_clean: bool = False
) -> list[Finding]:
    """Return the damage in the segments `logs` of a backup's directory `name` that were copied for it.

    Findings have the paths of the originals, in `source`. Segments that an earlier backup has are not read again. In a
    data directory that was closed cleanly (`is_clean`) anything after the last sound batch is damage, except reserved
    space that the close did not cut off. StorageError.
    """
    found: list[Finding] = []
    for log, following in zip(logs, [*logs[1:], None], strict=False):
        if backup.is_linked(f"{name}/{log}"):
            continue
        findings = Findings(os.path.join(source, log))
        next_base = None if following is None else parse_base_offset(following)
        index = f"{name}/{log.removesuffix(LOG_SUFFIX)}{INDEX_SUFFIX}"
        with os_errors("read the copy", backup.path_of(f"{name}/{log}")):
            with fs.open_file(backup.path_of(f"{name}/{log}"), "r") as file:
                length = file.size()
                found_index = read_index(backup.path_of(index), fs, length)
                SegmentPass(
                    file, parse_base_offset(log) or 0, findings, fs=fs, length=length, is_last=following is None,
                    is_clean=is_clean, entries=(found_index.entries, b""), has_room=found_index.has_room,
                    next_base_offset=next_base,
                ).run()  # fmt: skip
        found += [
            one
            for one in findings.all()
            if one.severity == Severity.DAMAGE
            or is_clean and one.severity == Severity.REPAIRABLE and one.kind.startswith("tail-")
        ]
    return found


def damage_notes(name: str, damage: Sequence[Finding]) -> list[str]:
    """Return the notes of this damage for a manifest, in which the partition's directory is `name`."""
    return [f"{DAMAGED}{name}/{os.path.basename(one.path)}: {one.where}: {one.what}" for one in damage]


def known_damage(backup: BackupInProgress, earlier: Manifest | None) -> list[str]:
    """Return an earlier manifest's notes of damage in the files that this backup links to."""
    notes = [] if earlier is None else [note for note in earlier.notes if note.startswith(DAMAGED)]
    return [note for note in notes if backup.is_linked(note.removeprefix(DAMAGED).partition(": ")[0])]


def refuse_damage(damage: Sequence[Finding]) -> None:
    """Raise CorruptRecord for the first of the damaged places, if there is one."""
    if damage:
        first = damage[0]
        more = f", and {len(damage) - 1} more damaged places" if len(damage) > 1 else ""
        raise CorruptRecord(
            f"{first.what}; {first.where}{more}", path=first.path, offset=first.offset, position=first.position,
            hint=first.hint if first.kind == "log-end" else _HINT,
        )  # fmt: skip
