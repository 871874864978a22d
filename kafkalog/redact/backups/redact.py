"""`redact_backups`: empty records of a topic in all backups of a directory or an object store; by default a dry run."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from kafkalog.backup.manifest import Manifest
from kafkalog.backup.remote.backups import RemoteBackups, located
from kafkalog.backup.store import BackupStore, StoreLock
from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptRecord, UnknownTopicOrPartition
from kafkalog.redact.backups.local import LocalBackups
from kafkalog.redact.backups.remote import ObjectBackups
from kafkalog.redact.backups.rewrite import Rewriter
from kafkalog.redact.backups.search import DAMAGED, ContentSearch, Found, Request, count_left
from kafkalog.redact.directories import change_of, check_offsets, check_partitions, check_topic, missing_names
from kafkalog.redact.report import RedactedSegment, RedactReport
from kafkalog.redact.search import Advance
from kafkalog.redact.wanted import Wanted
from kafkalog.storage.names import validate_topic
from kafkalog.tools.directories import Path
from kafkalog.util.fileio import OS, FileSystem

Place = LocalBackups | ObjectBackups


def redact_backups(
    target: Path | RemoteBackups,
    topic: str,
    *,
    keys: Iterable[bytes] = (),
    offsets: Mapping[int, Iterable[int]] | None = None,
    where: str | None = None,
    typed: Mapping[str, Any] | None = None,
    partitions: Sequence[int] = (),
    change: str | None = None,
    erase_key: bool = False,
    apply: bool = False,
    progress: Advance = lambda size: None,
    fs: FileSystem = OS,
) -> RedactReport:
    """Report which records of a topic are to be redacted in the backups in `target`; with `apply`, redact them.

    Records are named as for `redact`, and become the same. Each segment content is searched once, and rewritten once.
    A backup with such records is replaced as a whole: it keeps its id, its manifest has the new sums, and the old
    content is removed last. An error or a kill leaves every backup as it was or redacted, and another call completes
    the rest. Damage raises CorruptRecord before a backup changes.

    Backups in an object store (a URL, or RemoteBackups) need `staging`, a local directory to which the topic's segments
    are downloaded; encrypted ones also identities and, to be changed, recipients.

    Errors as for `redact`; PartitionNotFound, CorruptBackup; IllegalArgument without staging or recipients; with
    `apply` DirectoryLocked while a backup is created or deleted there.

    >>> from kafkalog.backup import create_backup
    >>> made = create_backup("data", "backups")    # of `log`
    >>> print(redact_backups("backups", "orders", keys=[b"u-1"], change="empty", apply=True).summary())
    1 record in 1 segment of 1 partition, ... bytes rewritten, with empty
    """
    check_topic(validate_topic(topic))
    wanted = Wanted.of(keys, offsets or {}, where, typed or {})
    check_offsets(wanted, partitions)
    with _opened(target, apply, fs) as place:
        manifests = place.manifests()
        numbers = _partitions_of(manifests, topic)
        check_partitions(topic, numbers, {*partitions, *wanted.offsets})
        made = _change_of(manifests, topic, change, erase_key)
        return _Run(place, Request(topic, wanted, made, frozenset(partitions)), fs, progress).run(manifests, apply)


@contextmanager
def _opened(target: Path | RemoteBackups, apply: bool, fs: FileSystem) -> Iterator[Place]:
    """Open the backups for the block; with `apply` no one else creates or deletes one in the directory meanwhile."""
    remote = located(target)
    if isinstance(remote, RemoteBackups):
        lease = remote.objects.leased("a redaction") if apply else nullcontext()
        with lease, remote.local_copy(remote.required_staging(), fs) as local:
            yield ObjectBackups(remote, local)
    elif apply:
        with StoreLock(remote, fs=fs) as store:
            yield LocalBackups(store, fs)
    else:
        yield LocalBackups(BackupStore(remote, fs=fs), fs)


def _partitions_of(manifests: Sequence[Manifest], topic: str) -> set[int]:
    """Return the partitions of a topic in the backups; UnknownTopicOrPartition if no backup has it."""
    numbers = {one.partition for manifest in manifests for one in manifest.partitions if one.topic == topic}
    if not numbers:
        topics = sorted({one.topic for manifest in manifests for one in manifest.partitions})
        raise UnknownTopicOrPartition(f"no backup has the topic {topic}", hint=f"topics: {', '.join(topics[:10])}")
    return numbers


def _change_of(manifests: Sequence[Manifest], topic: str, change: str | None, erase_key: bool) -> Any:
    """Return what becomes of the records; a topic that was compacted in one of the backups counts as compacted."""
    known = [manifest.topics[topic] for manifest in manifests if topic in manifest.topics]
    configs = [LogConfig.from_stored(settings) for settings in known] or [LogConfig.from_stored({})]
    config = next((one for one in configs if one.compact), configs[-1])
    return change_of(change, erase_key, config, bool(known))


class _Run:
    """One redaction: a search of all backups, and with `apply` the replacement of those with wanted records."""

    def __init__(self, place: Place, request: Request, fs: FileSystem, progress: Advance) -> None:
        self._place = place
        self._request = request
        self._fs = fs
        self._search = ContentSearch(request, fs, progress)

    def run(self, manifests: Sequence[Manifest], apply: bool) -> RedactReport:
        if apply:
            self._place.begin()
        leftovers = self._place.leftovers()
        found: dict[str, list[Found]] = {}
        for one in manifests:
            path = self._place.open(one, self._search.unsearched(one))
            found[one.id] = self._search.run(path, one)
            self._place.close(one, found[one.id])
        changing = [one for one in manifests if found[one.id]]
        segments, left = self._described(changing, found, {}), None
        if apply:
            segments, left = self._apply(changing, found)
        wanted, search = self._request.wanted, self._search
        return RedactReport(
            tuple(segments), missing_names(wanted, search.keys, search.offsets),
            (*leftovers, *search.unseen.values()), sum(map(self._count, manifests)), self._request.change.name, apply,
            left, "these backups",
        )  # fmt: skip

    def _count(self, manifest: Manifest) -> int:
        return len({one.directory for one in self._request.segments(manifest)})

    def _apply(
        self, changing: Sequence[Manifest], found: Mapping[str, list[Found]]
    ) -> tuple[list[RedactedSegment], int]:
        """Prepare all replacements, search them again, and put them in place; the segments and the records left."""
        place, rewriter, left = self._place, Rewriter(self._request, self._fs), 0
        new: dict[str, Manifest] = {}
        self._discard(changing)
        try:
            for one in changing:
                new[one.id] = place.prepare(one, found[one.id], rewriter)
                left += count_left(place.target(one), found[one.id], self._request, self._fs)
            segments = self._described(changing, found, new)
            for one in changing:
                place.replace(one, new[one.id])
        except BaseException as error:
            self._discard(changing)
            if isinstance(error, CorruptRecord):
                error.hint = DAMAGED
            raise
        place.finish()
        return segments, left

    def _discard(self, manifests: Sequence[Manifest]) -> None:
        """Remove prepared files that are not used."""
        for one in manifests:
            with suppress(OSError):
                shutil.rmtree(self._place.target(one), ignore_errors=True)

    def _described(
        self, changing: Sequence[Manifest], found: Mapping[str, list[Found]], new: Mapping[str, Manifest]
    ) -> list[RedactedSegment]:
        described = []
        for manifest in changing:
            after = {file.path: file.size for file in new[manifest.id].files} if new else {}
            for segment, offsets in found[manifest.id]:
                topic, number = segment.topic_partition
                described.append(
                    RedactedSegment(
                        topic, number, self._place.name_of(manifest, segment), segment.base_offset, len(offsets),
                        segment.file.size, after.get(segment.file.path),
                    )
                )  # fmt: skip
        return described
