"""A manifest comes back as it was written, and what anybody else may have written into one never leads outside."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog.backup import create_backup, list_backups, restore_backup
from kafkalog.backup.manifest import encode_manifest, file_line, parse_file_line, parse_manifest, safe_path
from kafkalog.errors import CorruptBackup
from tests.backup.logs import fill

BAD_PATHS = [
    "", "dir0", "dir0/", "/etc/passwd", "dir0/../x", "../dir0/x", "dir0/a/b/c", "dir0/./x", "dir0//x", "dir0/a\nb",
    "dir0/a\0b", "dirs/x", "x/y", "dir0/a\\b", "dir0/\u202ex", 5, None, ["dir0/x"],
]  # fmt: skip


@pytest.mark.parametrize("path", BAD_PATHS)
def test_no_path_leads_outside(path: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        safe_path(path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    where = tmp_path_factory.mktemp("manifest")
    fill(where / "data", records=50)
    path = Path(create_backup(where / "data", where / "backups", committed=lambda _: {"g": {"orders": {0: 5}}}).path)
    return (path / "kafkalog.backup.json").read_bytes()


def test_it_comes_back(written: bytes) -> None:
    manifest = parse_manifest(written, "here")
    assert encode_manifest(manifest) == written
    for file in manifest.files:
        assert parse_file_line(file_line(file)) == file
        assert parse_file_line(file_line(file)[:-9]) is None


@given(st.data())
def test_a_changed_document_is_a_typed_error_or_another_manifest(written: bytes, data: st.DataObject) -> None:
    document = json.loads(written)
    place: Any = document
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
                | st.lists(st.integers(), max_size=3) | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2)
            )  # fmt: skip
            break
        place = place[key]
    try:
        parse_manifest(json.dumps(document).encode(), "here")
    except CorruptBackup as error:
        assert error.path == "here"


@given(st.binary(max_size=60))
def test_any_bytes_are_a_typed_error(content: bytes) -> None:
    with pytest.raises(CorruptBackup):
        parse_manifest(content, "here")


def test_a_backup_whose_manifest_names_others_files_is_not_restored(tmp_path: Path) -> None:
    fill(tmp_path / "data", records=50)
    path = Path(create_backup(tmp_path / "data", tmp_path / "backups").path) / "kafkalog.backup.json"
    path.chmod(0o600)
    path.write_text(path.read_text().replace("dir0/kafkalog.topics.json", "dir0/../../../data/x"))
    with pytest.raises(CorruptBackup, match="is not a path in a backup"):
        restore_backup(tmp_path / "backups", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    with pytest.raises(CorruptBackup):
        list_backups(tmp_path / "backups")


@pytest.mark.parametrize("name", ["20269999T999999Z", "99991231T235959Z", "00000101T000000Z"])
@pytest.mark.parametrize("suffix", ["", ".partial"])
def test_directory_with_the_name_of_no_time_is_no_backup(tmp_path: Path, name: str, suffix: str) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t", 1, {})
        dirs["t", 0].append([(None, b"a", 1)])
    made = create_backup(tmp_path / "data", tmp_path / "backups").manifest
    (tmp_path / "backups" / f"{name}{suffix}").mkdir()
    second = create_backup(tmp_path / "data", tmp_path / "backups").manifest
    assert [one.id for one in list_backups(tmp_path / "backups")] == [made.id, second.id]
    assert restore_backup(tmp_path / "backups", tmp_path / "restored", at=made.created_ms).id == made.id
