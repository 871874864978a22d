"""Redactions that are killed: every record is there once, in order, as it was or redacted; the next run completes all.

    python -m tests.redact.killed DIRECTORY logs|backups|store|tiered steps|moments [KILLS [SEED [STRIDE]]]

It prints the number of kills. `KILLS` 0 with "steps" is a kill at every step.
"""

import logging
import shutil
import sys
from pathlib import Path

import kafkalog
from kafkalog.backup import RemoteBackups, create_backup, restore_backup, verify_backup
from kafkalog.backup.create import backups_of
from kafkalog.redact import redact, redact_backups
from kafkalog.util.fileio import OS, FileSystem
from tests.backup.test_create import Later
from tests.kills import Killed, kill
from tests.redact.model import Batch, read_all, redacted

KEY, PARTITIONS, RECORDS = b"k3", 2, 48
NAMES = [f"t-{number}" for number in range(PARTITIONS)]
STEPS = {
    "kafkalog/util/object_writes.py": {"_write_locally"},
    "kafkalog/backup/remote/objects.py": {"_remove", "put", "replace_manifest", "delete_superseded"},
    "kafkalog/backup/remote/local_copy.py": {"refresh", "fetch", "drop", "replace", "remove"},
    "kafkalog/redact/backups/": {"_write_log", "prepare", "replace", "finish"},
    "kafkalog/tools/tiered_events.py": {"append"},
    "kafkalog/redact/tiered": {"_stage", "_drop"},
    "kafkalog/tiered/segment_writer.py": {"_write", "_remove"},
}
State = dict[str, list[Batch]]


def append(data: Path) -> None:
    """More records in each partition, in segments of about 15."""
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        if "t" not in dirs.topics:
            dirs.create_topic("t", PARTITIONS, {"segment.bytes": 1500, "retention.ms": -1})
        for log in dirs.logs("t"):
            for n in range(log.end_offset, log.end_offset + RECORDS, 3):
                log.append([(b"k%d" % (m % 8), b"secret %d." % m, m + 1) for m in range(n, n + 3)])


def state_of(data: Path) -> State:
    return {name: read_all(data / name) for name in NAMES}


def model_of(state: State) -> State:
    """Return the state of the batches after a whole redaction."""
    keyed = {name: {r.offset for b in found for r in b.records if r.key == KEY} for name, found in state.items()}
    return {name: [redacted(one, keyed[name], tombstone=False) for one in found] for name, found in state.items()}


def sums_of(state: State) -> dict[str, tuple[int, int]]:
    """The number of records of each partition, and the sum of the numbers in their values: redacted ones add nothing.
    """
    values = {name: [r.value or b"" for b in found for r in b.records] for name, found in state.items()}
    return {name: (len(one), sum(int(v[7:-1]) for v in one if v)) for name, one in values.items()}


def wanted_sums(ends: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return the checksums of the appended records without those of the key."""
    return {name: (end, sum(n for n in range(end) if n % 8 != int(KEY[1:]))) for name, end in ends.items()}


class Logs:
    """Redaction of data directories."""

    def __init__(self, root: Path) -> None:
        self.data, self.saved = root / "data", root / "saved"
        for _ in range(2):
            append(self.data)
        shutil.copytree(self.data, self.saved)
        self.before = state_of(self.data)

    def work(self, fs: FileSystem) -> None:
        assert redact(self.data, "t", keys=[KEY], apply=True, fs=fs).ok

    def check(self) -> None:
        for name in NAMES:
            kafkalog.open(self.data / name, "a").close()  # what a broker does first
        found, model = state_of(self.data), model_of(self.before)
        for name in NAMES:
            assert [one.fixed for one in found[name]] == [one.fixed for one in self.before[name]]
            for new, old, wanted in zip(found[name], self.before[name], model[name], strict=True):
                assert new in (old, wanted)
        self.work(OS)
        found = state_of(self.data)
        assert found == model and sums_of(found) == wanted_sums(dict.fromkeys(NAMES, 2 * RECORDS))
        assert kafkalog.verify(self.data, deep=True).ok
        content = b"".join(one.read_bytes() for one in self.data.rglob("*") if one.is_file())
        assert b"secret 3." not in content and b"secret 4." in content
        shutil.rmtree(self.data)
        shutil.copytree(self.saved, self.data)


class Backups:
    """Redaction of backups: each one is whole, old or redacted, whenever the redaction is killed."""

    def __init__(self, root: Path, in_store: bool) -> None:
        self.root, self.place, self.saved = root, root / "backups", root / "saved"
        self.target = RemoteBackups(f"file://{self.place}", staging=root / "staging") if in_store else self.place
        clock = Later()
        for _ in range(2):
            append(root / "data")
            clock.hours += 1
            create_backup(root / "data", self.target, clock=clock)
        self.ids = backups_of(self.target).ids()
        shutil.copytree(self.place, self.saved)
        self.before = {one: self.restored(one) for one in self.ids}

    def restored(self, which: str) -> State:
        restore_backup(self.target, self.root / "restored", which)
        found = state_of(self.root / "restored")
        shutil.rmtree(self.root / "restored")
        return found

    def work(self, fs: FileSystem) -> None:
        assert redact_backups(self.target, "t", keys=[KEY], apply=True, fs=fs).ok

    def check(self) -> None:
        assert backups_of(self.target).ids() == self.ids
        models = {one: model_of(found) for one, found in self.before.items()}
        staging = self.root / "staging"
        for one in self.ids:
            assert verify_backup(self.target, one).ok
            left = staging.rename(self.root / "aside") if staging.exists() else None
            assert self.restored(one) in (self.before[one], models[one])
            if left is not None:
                left.rename(staging)
        self.work(OS)
        for number, one in enumerate(self.ids, 1):
            assert verify_backup(self.target, one).ok
            found = self.restored(one)
            assert found == models[one] and sums_of(found) == wanted_sums(dict.fromkeys(NAMES, number * RECORDS))
        content = b"".join(one.read_bytes() for one in self.place.rglob("*") if one.is_file())
        assert b"secret 3." not in content and b"secret 4." in content
        left_names = {one.name for one in self.place.iterdir()} - {*self.ids}
        assert not [name for name in left_names if name.endswith((".partial", ".deleted", ".redacted"))]
        assert not staging.exists()
        shutil.rmtree(self.place)
        shutil.copytree(self.saved, self.place)


class TieredTopic:
    """Redaction of a tiered topic: whenever it is killed, each segment is there, old or redacted."""

    def __init__(self, root: Path) -> None:
        from tests.redact.test_redact_tiered import BATCHES, Tiered, make_id
        from tests.tiered_store import FINISHED, Copy

        (root / "all").mkdir()
        self.tiered, self.saved = Tiered(root / "all", "packed"), root / "saved"
        self.tiered.add(Copy(make_id(9), BATCHES[:2]), FINISHED)  # another copy of the first segment
        shutil.copytree(root / "all", self.saved)
        self.before = self.tiered.values()
        self.objects = len(self.tiered.names()) - 3

    def work(self, fs: FileSystem) -> None:
        report = self.tiered.redact(keys=[b"k3", b"k12", b"k25"], apply=True, fs=fs)
        assert report.ok and report.left == 0

    def check(self) -> None:
        wanted = [(offset, b"" if offset in (3, 12, 25) else value) for offset, value in self.before]
        for one, old, new in zip(self.tiered.values(), self.before, wanted, strict=True):
            assert one in (old, new)
        self.work(OS)
        assert self.tiered.values() == wanted and len(self.tiered.names()) == self.objects
        assert kafkalog.verify(self.tiered.data / "orders-0", deep=True, tiered=self.tiered.description).ok
        assert not list(self.tiered.data.glob("*.partial"))
        place = self.tiered.data.parent
        shutil.rmtree(place)
        shutil.copytree(self.saved, place)


def main(root: Path, what: str, how: str, kills: int = 20, seed: int = 1, stride: int = 1) -> Killed:
    logging.disable(logging.ERROR)
    target: Logs | Backups | TieredTopic
    if what == "tiered":
        target = TieredTopic(root)
    else:
        target = Logs(root) if what == "logs" else Backups(root, what == "store")
    steps = STEPS if what in ("store", "tiered") else None
    return kill(target.work, target.check, how, kills or sys.maxsize, seed, steps, stride)


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), *sys.argv[2:4], *map(int, sys.argv[4:])).kills)
