"""Leases of stores whose runs were paused or killed, whose machine slept, or that may not delete objects."""

import fcntl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kafkalog.backup import RemoteBackups, create_backup, delete_backups, verify_backup
from kafkalog.backup.remote import lease
from kafkalog.backup.remote.lease import PREFIX, StoreLease
from kafkalog.errors import DirectoryLocked
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS
from kafkalog.util.remote_files import RemoteStatus, parse_info
from tests.backup.logs import fill
from tests.backup.test_create import Later

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
Backups = Callable[[], RemoteBackups]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", partitions=1, records=10)
    return tmp_path / "data"


@pytest.fixture(params=["memory", "file"])
def backups(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backups]:
    """Another handle on the same store with each call, as another process has one."""
    url = "memory://shop/pauses" if request.param == "memory" else f"file://{tmp_path}/store"
    numbers = iter(range(100))
    yield lambda: RemoteBackups(url, staging=tmp_path / f"staging-{next(numbers)}")
    fsspec.filesystem("memory").store.clear()


def leases(target: RemoteBackups) -> list[str]:
    return [name for name in target.objects.times() if name.startswith(PREFIX)]


def start_and_kill(url: str, doing: str, state: str) -> None:
    """Leave what a run that was killed leaves: its object, and its file on this machine."""
    one = StoreLease(RemoteBackups(url).objects, doing)
    one._file = lease._lock_file(one._token)
    one._store.put_note(one._held if state == "held" else one._wanted, one._content)
    assert one._file is not None
    one._file.close()


@pytest.mark.parametrize("state", ["held", "wanted"])
def test_a_look_at_a_killed_run_does_not_bring_it_back(data: Path, tmp_path: Path, state: str) -> None:
    """It is seen by a run that then gives up, and by one that looks whether it still has the lease."""
    url = f"file://{tmp_path}/store"
    create_backup(data, url)
    objects = RemoteBackups(url).objects
    with StoreLease(objects, "a test") as one:
        start_and_kill(url, "a backup", state)
        if state == "wanted":
            one.check(now=True)
        with pytest.raises(DirectoryLocked, match="a test by"):
            delete_backups(url, [])
    delete_backups(url, [])
    assert not leases(RemoteBackups(url))


def test_a_run_that_may_not_delete_objects_creates_backups(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rights protect the backups from it; the leases of its earlier runs end as those of killed ones do."""
    clock = Later()
    for _ in range(3):
        target = backups()
        monkeypatch.setattr(target.objects._fs, "rm_file", deny)
        clock.hours += 1
        create_backup(data, target, clock=clock)
    monkeypatch.undo()
    assert len(target.ids()) == 3 and leases(target)
    delete_backups(backups(), [])
    assert not leases(target)


def deny(path: str) -> None:
    raise PermissionError(path)


def test_a_run_that_is_paused_before_it_takes_the_lease_looks_again(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its request has ended meanwhile, and another run has the lease."""
    create_backup(data, target := backups())
    one, other = StoreLease(target.objects, "a test"), StoreLease(backups().objects, "another test")
    real, names = target.objects.put_note, list[str]()

    def put(name: str, content: bytes) -> None:
        if name == one._held:
            target.objects.remove_note(one._wanted)
            other.__enter__()
        names.append(name)
        real(name, content)

    monkeypatch.setattr(target.objects, "put_note", put)
    with pytest.raises(DirectoryLocked, match="another test by"), one:
        pass
    assert names == [one._wanted, one._held]
    other.check(now=True)
    other.__exit__()
    assert not leases(target)


def test_a_run_whose_machine_slept_asks_the_store(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monotonic clock stands still meanwhile."""
    create_backup(data, target := backups())
    with StoreLease(target.objects, "a test") as one:
        target.objects.remove_note(one._held)
        one.check()
        later = SYSTEM_CLOCK.milliseconds() + 3_600_000
        monkeypatch.setattr(type(SYSTEM_CLOCK), "milliseconds", staticmethod(lambda: later))
        with pytest.raises(DirectoryLocked, match="another one took over"):
            one.check()


def test_a_run_that_lost_its_lease_while_it_published_withdraws(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may have deleted contents of the backup, which no manifest named."""
    clock, target = Later(), backups()
    made = create_backup(data, target, clock=clock)
    clock.hours += 1
    real = target.objects._put_manifest

    def put(*given: Any) -> str:
        name = real(*given)
        for lost in leases(target):
            target.objects.remove_note(lost)
        return name

    with monkeypatch.context() as patch:
        patch.setattr(target.objects, "_put_manifest", put)
        with pytest.raises(DirectoryLocked, match="another one took over"):
            create_backup(data, target, clock=clock)
    assert target.ids() == [made.manifest.id] and not leases(target)
    clock.hours += 1
    create_backup(data, target, clock=clock)
    assert len(target.ids()) == 3 and verify_backup(target, target.ids()[1]).ok


def test_runs_that_look_at_a_killed_one_at_the_same_moment_see_that_it_is_gone(data: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    create_backup(data, url)
    start_and_kill(url, "a backup", "held")
    token = leases(RemoteBackups(url))[0].rpartition("-")[2]
    with OS.open_file(lease._lock_path(token), "rw") as looked_at:
        fcntl.flock(looked_at.fileno(), fcntl.LOCK_SH)
        delete_backups(url, [])
    assert not leases(RemoteBackups(url))


def test_a_renewal_notices_another_run_with_the_lease(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took over, and has not removed or could not remove what this run left."""
    url = f"file://{tmp_path}/store"
    create_backup(data, url)
    monkeypatch.setattr(lease, "RENEWED_EVERY_S", 0.001)
    with StoreLease(RemoteBackups(url).objects, "a test") as one:
        (tmp_path / "store" / f"{PREFIX}held-{'1' * 16}").write_bytes(b"{}")
        assert one._thread is not None
        one._thread.join(60)
        assert not one._thread.is_alive() and one._is_lost


def test_a_store_without_times_of_objects_has_a_way_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lease ends by itself there."""
    url = f"file://{tmp_path}/store"
    create_backup(data, url)
    target, name = RemoteBackups(url), f"{PREFIX}held-{'1' * 16}"
    (tmp_path / "store" / name).write_bytes(b"{}")
    with monkeypatch.context() as patch:
        patch.setattr("kafkalog.backup.remote.objects.parse_info", lambda info: RemoteStatus(False, 0, 0, ""))
        with pytest.raises(DirectoryLocked, match="another run is writing") as caught:
            target.delete([])
        assert f"if it no longer exists, delete the object {target.url}/{name}" in caught.value.hint
        target.objects.remove_note(name)
        target.delete([])


def test_the_time_of_an_object_is_that_of_its_last_write() -> None:
    """WebDAV has both, and an object that is written again keeps the first one."""
    first, last = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    assert parse_info({"created": first, "modified": last}).mtime_ns == last.timestamp() * 1_000_000_000


def test_a_file_that_is_removed_during_a_listing_hides_no_other(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older versions of fsspec fail then as for a missing directory; leases come and go beside the marker."""
    url = f"file://{tmp_path}/store"
    create_backup(data, url)
    target, failed = RemoteBackups(url), list[str]()
    real = target.objects._fs.ls

    def ls(path: str, **more: Any) -> Any:
        failed.append(path)
        if len(failed) % 2:
            raise FileNotFoundError(path)
        return real(path, **more)

    monkeypatch.setattr(target.objects._fs, "ls", ls)
    assert len(target.ids()) == 1 and failed
    target.delete([])
    assert len(target.ids()) == 1 and verify_backup(target).ok


def test_a_check_of_the_lease_is_one_listing(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_backup(data, target := backups())
    with StoreLease(target.objects, "a test") as one:
        real, calls = target.objects.times, list[int]()

        def times() -> dict[str, int]:
            calls.append(1)
            return real()

        monkeypatch.setattr(target.objects, "times", times)
        one.check(now=True)
    assert calls == [1]
