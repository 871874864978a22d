"""Runs that write to a store of backups exclude each other, on any machine; one that is lost is not waited for."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.backup import RemoteBackups, create_backup, delete_backups, restore_backup, verify_backup
from kafkalog.backup.create import _create
from kafkalog.backup.remote import lease
from kafkalog.backup.remote.lease import EXPIRES_S, PREFIX, StoreLease
from kafkalog.backup.remote.local_copy import LocalCopy
from kafkalog.errors import DirectoryLocked, IllegalState, PartitionNotFound, StorageError
from kafkalog.redact.backups.redact import redact_backups
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS
from kafkalog.util.remote_files import list_objects
from tests.backup.logs import append, fill
from tests.backup.test_create import Later
from tests.elsewhere import in_a_thread
from tests.remote.s3 import s3_server
from tests.trees import ROOT

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
Backups = Callable[[], RemoteBackups]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data", partitions=1, records=60)
    return tmp_path / "data"


@pytest.fixture(params=["memory", "file"])
def backups(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backups]:
    """Another handle on the same store with each call, as another process has one."""
    url = "memory://shop/leases" if request.param == "memory" else f"file://{tmp_path}/store"
    numbers = iter(range(100))
    yield lambda: RemoteBackups(url, staging=tmp_path / f"staging-{next(numbers)}")
    fsspec.filesystem("memory").store.clear()


def leases(target: RemoteBackups) -> list[str]:
    return [name for name in target.objects.times() if name.startswith(PREFIX)]


def in_the_middle(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, work: Callable[[], object]) -> list[int]:
    """Do some work in the first call of a function; the list that is returned gets an item for that."""
    real, done = getattr(owner, name), list[int]()

    def call(*given: Any, **more: Any) -> Any:
        if not done:
            done.append(1)
            work()
        return real(*given, **more)

    monkeypatch.setattr(owner, name, call)
    return done


@pytest.mark.parametrize("first", ["backup", "delete", "redact"])
def test_of_two_runs_that_write_one_does(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    clock, target = Later(), backups()
    made = create_backup(data, target, clock=clock)
    clock.hours += 1
    others: dict[str, Callable[[], object]] = {
        "backup": lambda: create_backup(data, backups(), clock=clock),
        "delete": lambda: delete_backups(backups(), [made.manifest.id]),
        "redact": lambda: redact_backups(backups(), "orders", keys=[b"key 3"], change="empty", apply=True),
    }
    place = {
        "backup": (LocalCopy, "upload"), "delete": (target.objects, "delete_leftovers"), "redact": (LocalCopy, "fetch"),
    }  # fmt: skip

    def meet() -> None:
        for name, work in others.items():
            with pytest.raises(DirectoryLocked, match=rf"a {first[:5]}\w* by process {os.getpid()} on \S+, which"):
                work()
            assert len(leases(target)) == 1, name

    met = in_the_middle(monkeypatch, *place[first], meet)
    own = {
        "backup": lambda: create_backup(data, target, clock=clock),
        "delete": lambda: delete_backups(target, []),
        "redact": others["redact"],
    }
    own[first]()
    assert met and not leases(target)
    assert verify_backup(target).ok and made.manifest.id in target.ids()
    create_backup(data, backups(), clock=clock)


@pytest.mark.parametrize("own_is_lower", [True, False])
def test_of_two_that_ask_at_the_same_moment_one_gets_the_lease(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch, own_is_lower: bool
) -> None:
    """Each has said that it wants it before either looks."""
    create_backup(data, target := backups())
    tokens = iter(["0" * 16, "f" * 16] if own_is_lower else ["f" * 16, "0" * 16])
    monkeypatch.setattr(lease, "token_hex", lambda size: next(tokens))
    both_asked = threading.Barrier(2)
    real = StoreLease._others

    def others(self: StoreLease, times: Any) -> Any:
        if not hasattr(self, "asked"):
            self.asked = True  # type: ignore[attr-defined]
            both_asked.wait(60)
            times = self._store.times()
        return real(self, times)

    monkeypatch.setattr(StoreLease, "_others", others)
    held, refused = list[str](), list[BaseException]()
    own, other = StoreLease(target.objects, "a test"), StoreLease(backups().objects, "a test")

    def take(one: StoreLease) -> None:
        try:
            one._acquire()
            held.append(one._token)
        except DirectoryLocked as error:
            refused.append(error)
            one._release()

    threads = [threading.Thread(target=take, args=[one]) for one in (own, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert held == ["0" * 16] and len(refused) == 1
    for one in (own, other):
        one._release()
    assert not leases(target)


def test_many_runs_write_one_after_another(data: Path, backups: Backups) -> None:
    create_backup(data, target := backups())
    inside, most, done = [0], [0], [0]

    def work() -> None:
        objects = backups().objects
        while True:
            try:
                with objects.leased("a test"):
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    objects._names("")
                    inside[0] -= 1
                    done[0] += 1
                    return
            except DirectoryLocked:
                continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == ([1], [4]) and not leases(target)


def test_a_file_removed_during_a_listing_of_memory_is_left_out() -> None:
    class Remote:
        found: Any = None

        def invalidate_cache(self, path: str) -> None: ...

        def ls(self, path: str, detail: bool) -> list[str]:
            if self.found is None:
                self.found = ["/shop/other"]
                raise KeyError("/shop/removed")
            return list(self.found)

    assert list_objects(Remote(), "/shop", detail=False, is_local=False) == ["/shop/other"]


def test_a_handle_that_two_threads_share_has_no_lease_in_common(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = backups()
    errors: list[BaseException | None] = []
    in_the_middle(monkeypatch, LocalCopy, "upload", lambda: errors.append(in_a_thread(lambda: target.delete([]))))
    create_backup(data, target)
    assert [type(one) for one in errors] == [DirectoryLocked]


HOLD = """
import sys
from kafkalog.backup import RemoteBackups
with RemoteBackups(sys.argv[1]).objects.leased("a backup"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lease_of_a_killed_process_ends_at_once(data: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    create_backup(data, url)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryLocked, match=f"a backup by process {process.pid} on"):
            delete_backups(url, [])
        process.kill()
    delete_backups(url, [])
    assert not leases(RemoteBackups(url))


def test_a_lease_of_another_machine_ends_when_it_is_not_renewed(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times that count are those of the objects in the store."""
    url = f"file://{tmp_path}/store"
    create_backup(data, url)
    left = tmp_path / "store" / f"{PREFIX}held-{'1' * 16}"
    left.write_bytes(b'{"doing": "a \\u001b[31mbackup", "host": "db\\n7", "pid": 7, "since_ms": 0}')
    with pytest.raises(DirectoryLocked, match=r"a \?\?31mbackup by process 7 on db\?7, which began at 1970"):
        delete_backups(url, [])
    past = os.stat(left).st_mtime - EXPIRES_S - 1
    os.utime(left, (past, past))
    delete_backups(url, [])
    assert not left.exists()


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"doing": 1, "host": null, "pid": "x"}', b"[" * 4000])
def test_any_content_of_a_lease_names_another_run(data: Path, tmp_path: Path, content: bytes) -> None:
    url = f"file://{tmp_path}/store"
    create_backup(data, url)
    (tmp_path / "store" / f"{PREFIX}held-{'1' * 16}").write_bytes(content)
    with pytest.raises(DirectoryLocked, match="another run is writing"):
        delete_backups(url, [])


def test_a_run_that_lost_its_lease_publishes_and_deletes_nothing(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused for so long that another run, here a finished one, took the lease."""
    clock, target = Later(), backups()
    made = create_backup(data, target, clock=clock)
    clock.hours += 1

    def lose() -> None:
        for name in leases(target):
            target.objects.remove_note(name)

    with monkeypatch.context() as patch:
        in_the_middle(patch, LocalCopy, "upload", lose)
        with pytest.raises(DirectoryLocked, match="another one took over"):
            create_backup(data, target, clock=clock)
    assert target.ids() == [made.manifest.id]
    later = SYSTEM_CLOCK.monotonic_ms() + 3_600_000
    with monkeypatch.context() as patch:
        lost = in_the_middle(patch, target.objects, "delete_superseded", lose)
        patch.setattr(type(SYSTEM_CLOCK), "monotonic_ms", lambda self: later if lost else 0)
        with pytest.raises(DirectoryLocked, match="another one took over"):
            delete_backups(target, [made.manifest.id])
    assert verify_backup(target).ok
    create_backup(data, target, clock=clock)
    assert len(target.ids()) == 3, "with the one that was prepared"


def test_a_lease_is_renewed_until_it_is_lost(data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch) -> None:
    create_backup(data, target := backups())
    monkeypatch.setattr(lease, "RENEWED_EVERY_S", 0.001)
    with StoreLease(target.objects, "a test") as one:
        before = target.objects.times()[one._held]
        while target.objects.times()[one._held] == before:
            assert one._thread is not None and one._thread.is_alive()
        while True:  # between a look and a write of the thread it may come back once
            target.objects.remove_note(one._held)
            assert one._thread is not None
            one._thread.join(1)
            if not one._thread.is_alive():
                break
        with pytest.raises(DirectoryLocked):
            one.check()


def test_two_manifests_of_one_id_are_never_both_taken_for_backups(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lease, since one was lost, both look and see nothing before either writes."""
    clock = Later()
    target, other = backups(), backups()
    create_backup(data, target, clock=clock)
    clock.hours += 1
    manifests = []
    for one in (target, other):
        with one.local_copy(one.required_staging(), OS) as local:
            report = _create([str(data)], local.path, False, None, None, OS, clock, target.objects.sums())
        manifests.append(report.manifest)
        with kafkalog.open_dirs(data, "a") as dirs:
            append(dirs["orders", 0], 3)
    first, second = (one._replace(id=manifests[0].id) for one in manifests)
    assert first != second
    real, results = target.objects._put_manifest, list[str]()

    def put(*given: Any) -> str:
        name = real(*given)
        with pytest.raises(IllegalState, match="was uploaded meanwhile"):
            other.objects.put_manifest(second)
        results.append(name)
        return name

    monkeypatch.setattr(target.objects, "_put_manifest", put)
    target.objects.put_manifest(first)
    assert results and target.manifest(first.id) == first


def test_two_uploads_that_both_looked_before_withdraw(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, other = backups(), backups()
    made = create_backup(data, target).manifest
    second = made._replace(notes=(*made.notes, "another one"))
    target.objects.delete(made.id)
    real = target.objects._put_manifest

    def put(*given: Any) -> str:
        other.objects._put_manifest(second, False)
        return real(*given)

    monkeypatch.setattr(target.objects, "_put_manifest", put)
    with pytest.raises(IllegalState, match=made.id):
        target.objects.put_manifest(made)
    assert target.manifest(made.id) == second


def test_a_backup_that_is_deleted_while_it_is_verified_is_not_damaged(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create_backup(data, target := backups())
    met = in_the_middle(monkeypatch, target.objects, "get", lambda: delete_backups(backups(), [made.manifest.id]))
    with pytest.raises(PartitionNotFound, match="was deleted meanwhile"):
        verify_backup(target)
    assert met


def test_a_backup_that_is_deleted_while_it_is_restored_is_not_damaged(
    data: Path, tmp_path: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create_backup(data, target := backups())
    met = in_the_middle(monkeypatch, target.objects, "get", lambda: delete_backups(backups(), [made.manifest.id]))
    with pytest.raises(PartitionNotFound, match="there is no backup"):
        restore_backup(target, tmp_path / "restored")
    assert met and not (tmp_path / "restored").exists()


def test_a_backup_that_is_redacted_while_it_is_verified_is_sound(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_backup(data, target := backups())
    report = []

    def redact() -> None:
        report.append(redact_backups(backups(), "orders", keys=[b"key 3"], change="empty", apply=True))

    in_the_middle(monkeypatch, target.objects, "get", redact)
    assert verify_backup(target).ok and report[0].segments


@pytest.mark.parametrize("moment", ["get", "manifest_content"])
def test_a_backup_that_is_redacted_while_it_is_restored_is_sound(
    data: Path, tmp_path: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The restore has the manifest from before, or from after and only its files from before."""
    create_backup(data, target := backups())
    report = []

    def redact() -> None:
        report.append(redact_backups(backups(), "orders", keys=[b"key 3"], change="empty", apply=True))

    with target.local_copy(target.required_staging(), OS) as local:
        monkeypatch.setattr(target, "local_copy", lambda staging, fs: nullcontext(local))
        in_the_middle(monkeypatch, target.objects, moment, redact)
        one_at_a_time, real = threading.Lock(), getattr(target.objects, moment)

        def call(*given: Any) -> Any:
            with one_at_a_time:
                return real(*given)

        monkeypatch.setattr(target.objects, moment, call)
        restored = restore_backup(target, tmp_path / "restored")
    assert report[0].segments and restored.redactions == 1
    with kafkalog.open(tmp_path / "restored" / "orders-0") as log:
        assert not any(one.value for one in log if one.key == b"key 3")


def test_a_store_that_fails_at_the_end_is_written_to_by_the_next_run(
    data: Path, backups: Backups, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, target = Later(), backups()

    def fail(name: str) -> None:
        raise StorageError("the line is dead")

    with monkeypatch.context() as patch:
        patch.setattr(target.objects, "remove_note", fail)
        create_backup(data, target, clock=clock)
    assert leases(target)
    clock.hours += 1
    create_backup(data, backups(), clock=clock)
    assert not leases(target)


def test_runs_in_an_s3_store_exclude_each_other(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with s3_server() as (_, options):
        fsspec.filesystem("s3", **options).mkdir("bucket")
        target, other = (
            RemoteBackups("s3://bucket/kafka", options=options | more, staging=tmp_path / f"staging{len(more)}")
            for more in ({}, {"skip_instance_cache": True})
        )
        def meet() -> None:
            with pytest.raises(DirectoryLocked, match=f"a backup by process {os.getpid()}"):
                create_backup(data, other)

        met = in_the_middle(monkeypatch, LocalCopy, "upload", meet)
        create_backup(data, target)
        assert met and verify_backup(other).ok and not leases(target)
    shutil.rmtree(tmp_path / "staging0", ignore_errors=True)
