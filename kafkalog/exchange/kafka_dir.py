"""Copies of topics to another data directory and back, byte by byte, with settings and groups' offsets.

    <target>/orders-0/...            the unchanged partitions, the last segment up to its last whole batch
    <target>/kafkalog.topics.json    the topics' ids and settings, also those found only in a broker's metadata
    <target>/kafkalog.export.json    the manifest, in a backup's format: offsets, settings, groups, checksums

The copy is made as a backup is (docs/backup.md), while others may write, and becomes a data directory by one rename.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kafkalog.backup.copying import Copier, Tell, sync_files
from kafkalog.backup.create import BackupRun, Committed, check_places
from kafkalog.backup.damage import refuse_damage
from kafkalog.backup.directory import CHECKPOINTS
from kafkalog.backup.in_progress import BackupInProgress
from kafkalog.backup.manifest import LACKS_GROUPS, Manifest, Offsets, encode_manifest, parse_manifest
from kafkalog.backup.restore import STAGING
from kafkalog.backup.store import StoreLock
from kafkalog.errors import (
    CorruptBackup,
    IllegalArgument,
    IllegalState,
    InconsistentTopicId,
    KafkalogError,
    StorageError,
    TopicExists,
    UnknownTopicOrPartition,
)
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.topics import TopicStore
from kafkalog.storage.names import LOCK_FILE
from kafkalog.storage.partition_metadata import new_topic_id, read_partition_metadata
from kafkalog.storage.remote import refuse_urls
from kafkalog.tools.directories import PartitionPath, Path, partitions, path_list
from kafkalog.util.checkpoint import OffsetCheckpoint
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS, atomic_write, make_directories
from kafkalog.util.os_errors import os_errors

EXPORT_FILE: Final = "kafkalog.export.json"
_STORE: Final = ".kafkalog-export"
_FINISHED: Final = ".kafkalog-exported"
"""Suffix of a finished export while its store is removed, so that the rename to the target is the last step."""
_MAX_BYTES: Final = 1 << 30
OFFSETS: Final = "__consumer_offsets"
Commit = Callable[[str, Offsets], object]
"""Function that writes groups' committed offsets into a data directory that no one has open."""


def is_exported(path: str) -> bool:
    """Return True if an export made the data directory `path`, that is, if its manifest exists."""
    return os.path.isfile(os.path.join(path, EXPORT_FILE))


def export_directory(
    dirs: Path | Iterable[Path],
    target: Path,
    *,
    topics: Sequence[str] = (),
    committed: Committed | None = None,
    tell: Tell | None = None,
) -> Manifest:
    """Export topics of a data directory, by default all, to the data directory `target`, which is missing or empty.

    After a kill, the next run resumes: the copies made so far are beside the target. If `committed` raises an error for
    the groups' offsets, the manifest has none, and a note. A log with damage is not exported:
    CorruptRecord is raised and `target` is unchanged. Raises UnknownTopicOrPartition; IllegalArgument for a non-empty
    target and for several data directories; otherwise as `create_backup`.
    """
    given = path_list(dirs)
    refuse_urls(target, *given)
    paths = [os.path.realpath(one) for one in given]
    if len(paths) != 1:
        raise IllegalArgument("an export takes one data directory at a time", hint="export each into its own target")
    place = os.path.realpath(target)
    check_places(paths, place)
    _check_empty(place)
    existing = {one.topic_partition.topic for one in partitions(paths)}
    missing = sorted(set(topics) - existing)
    if missing or not existing:
        raise UnknownTopicOrPartition(f"there is no topic {missing[0] if missing else 'to export'}", path=paths[0])
    wanted = frozenset(topics or existing)
    groups, notes = _read_groups(committed, paths, wanted)
    with StoreLock(place + _STORE, create=True) as store:
        with os_errors("clean up", place + _FINISHED):
            if OS.exists(place + _FINISHED):
                shutil.rmtree(place + _FINISHED)
        now_ms = SYSTEM_CLOCK.milliseconds()
        with BackupInProgress(store, store.known(), now_ms, fs=OS, tell=tell) as backup:
            run = BackupRun(backup, paths, OS, SYSTEM_CLOCK, wanted)
            manifest = run.run(now_ms, lambda _: groups)
            if run.damage:
                store.remove_all()
                refuse_damage(run.damage)
            manifest = manifest._replace(topics=_settings(paths, wanted), notes=(*manifest.notes, *notes))
            backup.commit(manifest)
        copied = os.path.join(store.path, backup.id, "dir0")
        _finish_directory(copied, manifest)
        with os_errors("move the export into place", place):
            make_directories(OS, os.path.dirname(place))
            OS.rename(copied, place + _FINISHED)
            store.remove_all()
            OS.rename(place + _FINISHED, place)
            OS.fsync_dir(os.path.dirname(place))
    return manifest


def _read_groups(
    committed: Committed | None, paths: Sequence[str], topics: frozenset[str]
) -> tuple[Offsets, list[str]]:
    """Return the groups' offsets in these topics; a note in place of all of them if some are damaged."""
    try:
        return ({} if committed is None else _filter_topics(committed(paths), topics)), []
    except KafkalogError as error:
        return {}, [f"{LACKS_GROUPS}{error}"]


def _filter_topics(groups: Offsets, topics: frozenset[str]) -> Offsets:
    filtered = {group: {topic: at for topic, at in found.items() if topic in topics} for group, found in groups.items()}
    return {group: found for group, found in filtered.items() if found}


def _settings(paths: Sequence[str], topics: frozenset[str]) -> dict[str, dict[str, str]]:
    known = read_known_topics(paths)
    return {topic: dict(known.settings_of(topic) or {}) for topic in sorted(topics)}


def _check_empty(place: str) -> None:
    if OS.exists(place) and (not os.path.isdir(place) or OS.names(place)):
        raise IllegalArgument("the target is not empty", path=place, hint="choose a missing or empty directory")


def _finish_directory(copied: str, manifest: Manifest) -> None:
    """Turn the copies into a data directory: writable files, a topics file, the manifest."""
    with os_errors("finish the export", copied):
        OS.rmdir(os.path.join(copied, LOCK_FILE))
        for file in manifest.files:
            OS.chmod(os.path.join(copied, file.path.partition("/")[2]), 0o600 if file.is_private else 0o644)
        for topic, settings in manifest.topics.items():
            parts = [one for one in manifest.partitions if one.topic == topic]
            count = max((one.partition + 1 for one in parts), default=0)
            if count:
                topic_id = next((one.topic_id for one in parts if one.topic_id is not None), None) or new_topic_id()
                TopicStore(copied).ensure(topic, partitions=count, settings=settings, topic_id=topic_id)
        atomic_write(OS, os.path.join(copied, EXPORT_FILE), encode_manifest(manifest))
        OS.fsync_dir(copied)


def import_directory(
    source: Path,
    data: Path,
    *,
    topics: Sequence[str] = (),
    resume: bool = False,
    committed: Committed | None = None,
    commit: Commit | None = None,
    tell: Tell | None = None,
) -> list[PartitionPath]:
    """Copy topics of the data directory `source` into `data`, where they are missing; return the copied partitions.

    With the manifest of an export every file is compared with its checksum. Ids, settings and checkpoints are copied
    too. With `resume` existing partitions are kept: each was renamed into place complete. `commit` writes the groups'
    committed offsets in these topics, from the manifest or, without one, from `committed`. It is not called if
    `__consumer_offsets` itself is copied.

    Nothing is imported if `committed` raises an error, or if the manifest lacks the groups' offsets (IllegalState).
    Raises TopicExists for an existing partition; UnknownTopicOrPartition; InconsistentTopicId for a topic that has
    another id in `data`; IllegalArgument if one directory is inside the other; CorruptBackup for a file that changed
    since the export; DirectoryLocked while another process writes to either directory; StorageError.
    """
    refuse_urls(source, data)
    origin, place = os.path.realpath(source), os.path.realpath(data)
    check_places([origin], place)
    found = [one for one in partitions([origin]) if not topics or one.topic_partition.topic in topics]
    missing = sorted(set(topics) - {one.topic_partition.topic for one in found})
    if missing or not found:
        raise UnknownTopicOrPartition(f"there is no topic {missing[0] if missing else 'to import'}", path=origin)
    manifest = _read_manifest(origin)
    needs_groups = commit is not None and OFFSETS not in {one.topic_partition.topic for one in found}
    groups = _groups_to_commit(manifest, committed, origin) if needs_groups else {}
    if manifest is not None:
        _check_complete(manifest, found, topics, origin)
    sums = None if manifest is None else _checksums(manifest)
    is_backup = os.path.isdir(os.path.join(origin, LOCK_FILE))  # no one writes to a backup
    locks = [LogDir.acquire(place, create=True, exclusive=True)]
    try:
        locks[0].before_first_write()
        locks[0].withhold_marker()
        if not is_backup:
            locks.append(LogDir.acquire(origin, exclusive=True))
        missing_partitions = [one for one in found if not OS.exists(os.path.join(place, str(one.topic_partition)))]
        if len(missing_partitions) < len(found) and not resume:
            existing = next(one for one in found if one not in missing_partitions)
            raise TopicExists(
                f"{existing.topic_partition} already exists", path=place, hint="continue an import with --resume"
            )
        _check_ids([one for one in found if one not in missing_partitions], place)
        _copy_all(place, missing_partitions, sums, Copier(OS, tell))
        _install(origin, place, missing_partitions)
    finally:
        for one in locks:
            one.release()
    if commit is not None and OFFSETS not in {one.topic_partition.topic for one in missing_partitions}:
        wanted = _filter_topics(groups, frozenset(one.topic_partition.topic for one in found))
        if wanted:
            commit(place, wanted)
    return missing_partitions


def _groups_to_commit(manifest: Manifest | None, committed: Committed | None, origin: str) -> Offsets:
    """Return the groups' offsets of an export, or of another data directory; IllegalState if the export has none."""
    if manifest is None:
        return {} if committed is None else committed([origin])
    for note in manifest.notes:
        if note.startswith(LACKS_GROUPS):
            reason = note.removeprefix(LACKS_GROUPS).partition(" Hint: ")[0]
            raise IllegalState(
                f"the export has no offsets of groups: {reason}", path=os.path.join(origin, EXPORT_FILE),
                hint="repair the log of the groups and export again, or import without --group-offsets",
            )  # fmt: skip
    return manifest.groups


def _read_manifest(origin: str) -> Manifest | None:
    path = os.path.join(origin, EXPORT_FILE)
    if not OS.exists(path):
        return None
    with os_errors("read the manifest", path):
        return parse_manifest(OS.read_file(path, _MAX_BYTES), path)


def _checksums(manifest: Manifest) -> dict[str, str]:
    """Return the checksums of the partitions' files, by path."""
    return {file.path.partition("/")[2]: file.sha256 for file in manifest.files if file.path.count("/") == 2}


def _check_complete(manifest: Manifest, found: Sequence[PartitionPath], topics: Sequence[str], origin: str) -> None:
    """Raise CorruptBackup if a partition or a file that was exported is missing."""
    paths = {str(one.topic_partition): one.path for one in found}
    wanted = {f"{one.topic}-{one.partition}" for one in manifest.partitions if not topics or one.topic in topics}
    needed = dict.fromkeys(wanted - paths.keys(), origin)
    names = {partition: set(OS.names(path)) for partition, path in paths.items()}
    for file in _checksums(manifest):
        partition, _, name = file.partition("/")
        if partition in names and name not in names[partition]:
            needed[file] = paths[partition]
    if needed:
        missing = min(needed)
        raise CorruptBackup(
            f"{missing}, which was exported, is missing", path=needed[missing],
            hint=f"export it again; without {EXPORT_FILE} what is there is copied unchecked",
        )  # fmt: skip


def _check_ids(existing: Sequence[PartitionPath], place: str) -> None:
    """Raise InconsistentTopicId for a partition of `place` with the name of one to import, but of another topic."""
    for key, path in existing:
        ours = os.path.join(place, str(key))
        theirs, present = read_partition_metadata(OS, path), read_partition_metadata(OS, ours)
        if theirs is not None and present is not None and theirs != present:
            raise InconsistentTopicId(
                f"{key} belongs to the topic with id {present}, but is to be imported from the one with id {theirs}",
                path=ours, hint="import into another directory, or delete the topic there first",
            )  # fmt: skip


def _copy_all(place: str, wanted: Sequence[PartitionPath], sums: dict[str, str] | None, copier: Copier) -> None:
    """Copy partitions to a staging directory, where they do not count as partitions."""
    staging = os.path.join(place, STAGING)
    copied = []
    try:
        if OS.exists(staging):
            shutil.rmtree(staging)
        for one in wanted:
            directory = os.path.join(staging, str(one.topic_partition))
            make_directories(OS, directory)
            for name in sorted(OS.names(one.path)):
                if OS.is_directory(os.path.join(one.path, name)):
                    continue  # what recovery kept is no part of the log
                target = os.path.join(directory, name)
                with OS.open_file(os.path.join(one.path, name), "r") as file:
                    status = file.stat()
                    found = copier.copy(file, target, status.st_size)
                if sums is not None and sums.get(f"{one.topic_partition}/{name}") != found:
                    raise CorruptBackup(
                        "the file changed since it was exported", path=os.path.join(one.path, name),
                        hint=f"export it again; without {EXPORT_FILE} files are copied unchecked",
                    )  # fmt: skip
                OS.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))
                copied.append(target)
            OS.fsync_dir(directory)
        sync_files(OS, copied)
    except BaseException as error:
        shutil.rmtree(staging, ignore_errors=True)
        if isinstance(error, OSError):
            raise StorageError.from_os(error, "copy the partitions", path=staging) from error
        raise


def _install(origin: str, place: str, wanted: Sequence[PartitionPath]) -> None:
    """Write topics and checkpoints first, while their partitions do not exist yet, then rename the partitions."""
    keys = {one.topic_partition for one in wanted}
    known = read_known_topics([origin])
    for topic in sorted({key.topic for key in keys}):
        paths = [one.path for one in wanted if one.topic_partition.topic == topic]
        count = 1 + max(key.partition for key in keys if key.topic == topic)
        settings = known.settings_of(topic) or {}
        topic_id = read_partition_metadata(OS, paths[0])
        TopicStore(place).ensure(topic, partitions=count, settings=settings, topic_id=topic_id)
    for name in CHECKPOINTS:
        theirs = OffsetCheckpoint(os.path.join(origin, name)).read()
        checkpoint = OffsetCheckpoint(os.path.join(place, name))
        before = checkpoint.read()
        after = before | {key: at for key, at in theirs.items() if key in keys}
        if after != before:
            checkpoint.write(after)
    staging = os.path.join(place, STAGING)
    with os_errors("move the partitions into place", place):
        for key in sorted(keys):
            OS.rename(os.path.join(staging, str(key)), os.path.join(place, str(key)))
        OS.fsync_dir(place)
        if OS.exists(staging):
            OS.rmdir(staging)
