"""Restores that are killed: nothing half done is a log, and the next run brings every record, once, in order.

    python -m tests.backup.killed DIRECTORY backup|store|moment|directories steps|moments [KILLS [SEED [STRIDE]]]

A whole backup is restored, from a directory or an object store; or a moment, from a backup or from data directories.
It prints the number of kills. `KILLS` 0 with "steps" is a kill at every step.
"""

import logging
import shutil
import sys
from pathlib import Path

import pytest

import kafkalog
from kafkalog.backup import RemoteBackups, create_backup, restore_backup, restore_directories
from kafkalog.errors import NotAPartition, PartitionNotFound
from kafkalog.util.fileio import OS, FileSystem
from tests.backup.logs import files
from tests.kills import Killed, kill

PARTITIONS, RECORDS, MOMENT = 2, 120, 10_000
STEPS = {
    "kafkalog/backup/remote/": {"refresh", "_download_file", "remove", "remove_local_copy", "_write_manifest"},
    "kafkalog/backup/restore.py": {"_copy", "copy", "complete", "publish"},
}


def value_of(n: int) -> bytes:
    return b"%d of the log" % n


class Restores:
    """Restores of one kind. Of a moment the first 100 records of each partition have come by then."""

    def __init__(self, root: Path, what: str) -> None:
        self.what, self.data, self.target = what, root / "data", root / "restored"
        self.backups = RemoteBackups(f"file://{root}/store") if what == "store" else root / "backups"
        with kafkalog.open_dirs(self.data, "a", log_cleaner_enable=False) as dirs:
            dirs.create_topic("t", PARTITIONS, {"segment.bytes": 1500, "retention.ms": -1})
            for log in dirs.logs("t"):
                for n in range(0, RECORDS, 4):
                    log.append([(b"k", value_of(m), MOMENT - 100 + m + 1) for m in range(n, n + 4)])
        if what != "directories":
            create_backup(self.data, self.backups)
        self.wanted = 100 if what in ("moment", "directories") else RECORDS

    def work(self, fs: FileSystem) -> None:
        if self.what == "directories":
            restore_directories(self.data, self.target, at=MOMENT, fs=fs)
        else:
            restore_backup(self.backups, self.target, at=MOMENT if self.what == "moment" else None, fs=fs)

    def check(self) -> None:
        names = {one.name for one in self.target.iterdir()} if self.target.exists() else set[str]()
        if "kafkalog-restore.partial" in names:
            with pytest.raises(NotAPartition, match="kafkalog-restore"):
                kafkalog.open_dirs(self.target, "a")
        is_complete = names - {".lock"} and not any(name.startswith("kafkalog-restore.") for name in names)
        if not is_complete or [*self.target.parent.glob("restored.kafkalog-restore*")]:
            self.work(OS)
        self.check_records()
        if self.wanted == RECORDS:
            assert files(self.target) == files(self.data)
        assert kafkalog.verify(self.target, deep=True).ok
        left = {one.name for one in self.target.parent.iterdir()} - {"data", "restored", "backups", "store"}
        assert not left, left
        shutil.rmtree(self.target)

    def check_records(self) -> None:
        for number in range(PARTITIONS):
            try:
                with kafkalog.open(self.target / f"t-{number}") as log:
                    found = [(one.offset, one.value) for one in log]
            except PartitionNotFound as error:
                raise AssertionError("half a restore looks like a whole one") from error
            assert found == [(n, value_of(n)) for n in range(self.wanted)]
            numbers = [int((value or b"").split()[0]) for _, value in found]
            assert sum(numbers) == self.wanted * (self.wanted - 1) // 2


def main(root: Path, what: str, how: str, kills: int = 20, seed: int = 1, stride: int = 1) -> Killed:
    logging.disable(logging.ERROR)
    target = Restores(root, what)
    steps = STEPS if what == "store" else None
    return kill(target.work, target.check, how, kills or sys.maxsize, seed, steps, stride)


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), *sys.argv[2:4], *map(int, sys.argv[4:])).kills)
