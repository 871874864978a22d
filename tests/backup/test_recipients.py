"""An encrypted store whose recipients change: no backup is made that its own keys cannot restore."""

from pathlib import Path

import pytest

from kafkalog.backup import RemoteBackups, create_backup, restore_backup, verify_backup
from kafkalog.errors import IllegalArgument
from tests.backup.logs import fill, offsets

pyrage = pytest.importorskip("pyrage", reason="pyrage is not installed: pip install 'kafkalog[encryption]'")


class Keys:
    """Two key pairs, and the store with some of them."""

    def __init__(self, path: Path) -> None:
        self._url = f"file://{path}/store"
        self._recipients, self._files = list[str](), list[Path]()
        for name in ("former", "new"):
            identity = pyrage.x25519.Identity.generate()
            self._recipients.append(str(identity.to_public()))
            self._files.append(path / f"{name}.txt")
            self._files[-1].write_text(f"{identity}\n")

    def store(self, recipient: int, *identities: int) -> RemoteBackups:
        files = [self._files[one] for one in identities]
        return RemoteBackups(self._url, recipients=[self._recipients[recipient]], identities=files)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    fill(tmp_path / "data")
    found = Keys(tmp_path)
    create_backup(tmp_path / "data", found.store(0))
    return found


@pytest.mark.parametrize("identities", [(), (1,)])
def test_a_backup_for_other_recipients_is_refused(tmp_path: Path, keys: Keys, identities: tuple[int, ...]) -> None:
    with pytest.raises(IllegalArgument, match="encrypted for other recipients.*another URL"):
        create_backup(tmp_path / "data", keys.store(1, *identities))
    assert len(keys.store(1).ids()) == 1
    create_backup(tmp_path / "data", keys.store(0))


def test_one_whose_maker_has_the_former_key_needs_both_to_be_restored(tmp_path: Path, keys: Keys) -> None:
    create_backup(tmp_path / "data", keys.store(1, 0, 1))
    create_backup(tmp_path / "data", keys.store(1))
    assert verify_backup(keys.store(1, 0, 1)).ok and not verify_backup(keys.store(1, 1)).ok
    restore_backup(keys.store(1, 0, 1), tmp_path / "restored")
    assert offsets(tmp_path / "restored" / "orders-0") == offsets(tmp_path / "data" / "orders-0")


def test_a_damaged_manifest_and_a_store_of_an_earlier_version(tmp_path: Path, keys: Keys) -> None:
    for note in (tmp_path / "store").glob("kafkalog.objects.recipients-*"):
        note.unlink()
    with pytest.raises(IllegalArgument, match="other recipients"):
        create_backup(tmp_path / "data", keys.store(1, 1))
    create_backup(tmp_path / "data", keys.store(0, 0))
    for note in (tmp_path / "store").glob("kafkalog.objects.recipients-*"):
        note.unlink()
    newest = max((tmp_path / "store" / "manifests").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    create_backup(tmp_path / "data", keys.store(0, 0))
    assert len(list((tmp_path / "store").glob("kafkalog.objects.recipients-*"))) == 1
