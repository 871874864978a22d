"""A wheel that is packed again holds what it held, says the same of it, and is read by other programs."""

import zipfile
import zipimport
from pathlib import Path

from ci.wheels.check import check_wheel
from ci.wheels.pack import pack_again
from tests.packaging.toy_wheel import TARGET, ToyWheel, tree


def entries(wheel: Path) -> list[tuple]:
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return [
            (info.filename, info.date_time, info.external_attr, info.create_system, info.CRC, archive.read(info))
            for info in archive.infolist()
        ]


def test_a_wheel_packed_again_is_the_same_one_in_fewer_bytes(tmp_path):
    wheel = ToyWheel.sound().pack(tmp_path)
    before, size = entries(wheel), wheel.stat().st_size
    pack_again(wheel)
    assert entries(wheel) == before
    assert wheel.stat().st_size < size
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]
    assert check_wheel(wheel, TARGET, tree(tmp_path / "tree"), []).faults == []
    once = wheel.read_bytes()
    pack_again(wheel)
    assert wheel.read_bytes() == once


def test_modes_times_and_names_beyond_ascii_stay(tmp_path):
    wheel = tmp_path / "names.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, mode, year in [("größe.txt", 0o600, 2031), ("run", 0o755, 1980)]:
            info = zipfile.ZipInfo(name, (year, 12, 31, 23, 59, 58))
            info.external_attr = (0o100000 | mode) << 16
            archive.writestr(info, name * 50)
        archive.writestr("empty", b"")
    before = entries(wheel)
    pack_again(wheel)
    assert entries(wheel) == before


def test_another_reader_takes_it(tmp_path):
    """The interpreter's own importer has a reader of archives that has nothing of `zipfile` in it."""
    wheel = ToyWheel.sound().pack(tmp_path)
    before = entries(wheel)
    pack_again(wheel)
    reader = zipimport.zipimporter(str(wheel))
    for name, *_, data in before:
        assert reader.get_data(f"{wheel}/{name}") == data, name
