"""Target in a directory of backups: a new backup with the newest one's contents and the copied records.

    <backups>.kafkalog-copy/           data directory of a copy that is not complete; the next run continues it
    <backups>.kafkalog-copy.restored/  the newest backup, which becomes that directory by a rename
    <backups>.kafkalog-copy.stored/    the data directory once it is in a backup, while it is removed
    <backups>/kafkalog.copying         locked by the one copy that writes to these directories

The next copy, holding the lock, removes what a killed one left of the last two directories. A copy is planned before it
has the lock; with the lock it checks again, and ends if anything has changed. Only a complete copy, with the offsets of
groups, becomes a backup. It links to the files of earlier ones.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Final

from kafkalog.backup.create import create_backup
from kafkalog.backup.manifest import Manifest
from kafkalog.backup.restore import restore_backup
from kafkalog.backup.store import BackupStore, StoreLock
from kafkalog.copy.directory_target import DirectoryTarget, topics_in
from kafkalog.copy.facts import INTERNAL, TargetTopic
from kafkalog.copy.plan import TopicPlan
from kafkalog.copy.targets import Copied, GroupOffsets, PartitionJob
from kafkalog.dirs.open import open_dirs
from kafkalog.errors import DirectoryLocked, IllegalArgument, IllegalState
from kafkalog.server.groups.stored import whole_offsets
from kafkalog.types import TopicPartition
from kafkalog.util.file_lock import open_locked
from kafkalog.util.fileio import OS, File, make_directories
from kafkalog.util.os_errors import os_errors

_STAGING: Final = ".kafkalog-copy"
_RESTORED: Final = ".restored"
_STORED: Final = ".stored"
_LOCK: Final = "kafkalog.copying"


class BackupTarget:
    """A directory of backups, which gets one more; it is created if missing."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        self._staging = self._path + _STAGING
        self._directory = DirectoryTarget(self._staging)
        self._lock: File | None = None
        self._planned: dict[str, TargetTopic] = {}
        self._names: tuple[str, ...] = ()
        self.traits = self._directory.traits._replace(name=path)

    async def existing(self, names: Sequence[str]) -> dict[str, TargetTopic]:
        """Return those of the topics in the copy in progress, else in the newest backup; nothing is written.

        IllegalState if the copy in progress was one of other topics.
        """
        self._names, self._planned = tuple(names), self._topics(names)
        return self._planned

    def _topics(self, names: Sequence[str]) -> dict[str, TargetTopic]:
        newest = self._newest()
        last = None if newest is None else os.path.join(self._path, newest.id, "dir0")
        if os.path.isdir(self._staging):
            self._check_others(names, last)
            return topics_in(self._staging, names)
        return {} if last is None else topics_in(last, names)

    def _check_others(self, names: Sequence[str], last: str | None) -> None:
        """Raise IllegalState if a topic not in `names` differs between the copy in progress and the backup `last`."""
        places = [self._staging] if last is None else [self._staging, last]
        ends: list[dict[str, object]] = []
        for place in places:
            with open_dirs(place) as dirs:
                others = dirs.topics.keys() - INTERNAL - set(names)
            ends.append({name: topic.ends for name, topic in topics_in(place, sorted(others)).items()})
        before = ends[1] if last is not None else {}
        differing = sorted(name for name in ends[0].keys() | before.keys() if ends[0].get(name) != before.get(name))
        if differing:
            raise IllegalState(
                f"a copy of topic {differing[0]} was not completed, or a backup was created since", path=self._staging,
                hint="copy that topic too; or, while no other copy runs, remove this directory, and it begins with the "
                "newest backup",
            )  # fmt: skip

    def _newest(self) -> Manifest | None:
        """Return the manifest of the newest backup; IllegalArgument if this is not a directory of backups."""
        if not os.path.isdir(self._path) or not os.listdir(self._path):
            return None
        newest = BackupStore(self._path).newest()
        if newest is not None and len(newest.directories) > 1:
            raise IllegalArgument(
                f"the newest backup has {len(newest.directories)} data directories", path=self._path,
                hint="copy into another directory of backups",
            )  # fmt: skip
        return newest

    async def check(self, plan: TopicPlan) -> None:
        """Raise the errors of a directory's `check`."""
        await self._directory.check(plan)

    async def create(self, plan: TopicPlan) -> None:
        """Create the topic in the data directory. Errors as for a directory, and as for `restore_backup`.

        DirectoryLocked while another copy writes to it; IllegalState if one has written since the plan.
        """
        if self._lock is None:
            self._prepare()
        await self._directory.create(plan)

    def _prepare(self) -> None:
        """Lock the data directory; if it is missing, create it, from the newest backup if there is one."""
        with StoreLock(self._path, create=True) as store, os_errors("prepare the copy", self._staging):
            lock = open_locked(OS, os.path.join(self._path, _LOCK), "create")
            if lock is None:
                raise DirectoryLocked(
                    "another copy into these backups is not complete", path=self._staging, hint="wait until it finishes"
                )
            try:
                self._make_staging(store.path)
            except BaseException:  # a caller that retries must prepare again
                lock.close()
                raise
            self._lock = lock

    def _make_staging(self, store: str) -> None:
        newest, restored = self._newest(), self._staging + _RESTORED
        if self._topics(self._names) != self._planned:
            raise IllegalState(
                "another copy into these backups ended after this one was planned", path=self._path,
                hint="run the command again",
            )  # fmt: skip
        for left in (restored, self._staging + _STORED):
            if os.path.isdir(left):
                shutil.rmtree(left)
        if os.path.isdir(self._staging):
            return
        if newest is None:
            make_directories(OS, self._staging)
            return
        restore_backup(store, restored, newest.id)
        OS.rename(restored, self._staging)
        OS.fsync_dir(os.path.dirname(self._staging))

    async def copy(self, job: PartitionJob) -> Copied:
        """Copy into the data directory, as a directory's `copy`."""
        return await self._directory.copy(job)

    async def commit(self, offsets: GroupOffsets) -> dict[str, str]:
        """Commit in the data directory, as a directory's `commit`."""
        return await self._directory.commit(offsets)

    async def committed(self, group: str, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets that a group has in the data directory."""
        return await self._directory.committed(group, keys)

    async def finish(self) -> None:
        """Create the backup, and remove the data directory. Errors as for `create_backup`."""
        await self._directory.close()
        create_backup(self._staging, self._path, committed=whole_offsets)
        with os_errors("remove the copy that is in a backup now", self._staging):
            stored = self._staging + _STORED
            OS.rename(self._staging, stored)  # a run after a kill must not continue a part of it
            OS.fsync_dir(os.path.dirname(stored))
            shutil.rmtree(stored)

    async def close(self) -> None:
        """Close the logs and release the locks."""
        lock, self._lock = self._lock, None
        try:
            await self._directory.close()
        finally:
            if lock is not None:
                lock.close()
