"""Batches a screenful at a time: both ways, over segments, around damage, and little read of a huge log."""

import re
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.browse.batches import BatchRow, Place, after, before, find_place
from kafkalog.browse.levels import record_level
from kafkalog.browse.tree import FieldLevel
from kafkalog.inspect.values import text_of
from kafkalog.storage.readonly.view import LogView
from tests.golden_cases import Case, each_partition
from tests.raw_batches import batch, batches, write_segment
from tests.storage.damage_cases import DAMAGE, damage


def everything(view: LogView) -> list[BatchRow]:
    first = view.segments.first
    assert first is not None
    return after(view, Place(first.base_offset, 0), 1_000_000)


def end_of(view: LogView) -> Place:
    return Place(view.active_segment.base_offset, view.active_segment.size)


def read_bytes() -> int:
    found = re.search(r"^rchar: (\d+)$", Path("/proc/self/io").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


@each_partition("logdir", "legacy")
def test_rows_are_the_batches_of_the_files(case: Case) -> None:
    with LogView(case.directory) as view:
        rows = everything(view)
        headers = [(one.base_offset, header) for one in view.segments for header in one.records.slice(0, one.size)
                   .batches()]  # fmt: skip
        found = [(row.place, row.size, row.base_offset, row.last_offset, row.problem) for row in rows]
        assert found == [
            (Place(base, header.position), header.size, header.base_offset, header.last_offset, "")
            for base, header in headers
        ]
        assert [row.timestamp for row in rows] == [header.max_timestamp for _, header in headers]


def three_segments(path: Path, *, interval: int = 200) -> Path:
    for base in (0, 300, 600):
        write_segment(path, base, batches(base, 30, 10), interval=interval)
    return path


@given(at=st.integers(0, 90), count=st.integers(1, 100))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("interval", [200, 1 << 30])
def test_back_and_forth_meet(tmp_path_factory: pytest.TempPathFactory, interval: int, at: int, count: int) -> None:
    """With a dense index and with an empty one, over the ends of segments."""
    path = tmp_path_factory.getbasetemp() / f"three{interval}" / "t-0"
    if not path.exists():
        three_segments(path, interval=interval)
    with LogView(path) as view:
        rows = everything(view)
        assert len(rows) == 90
        place = rows[at].place if at < 90 else end_of(view)
        assert after(view, place, count) == rows[at : at + count]
        assert before(view, place, count) == rows[max(0, at - count) : at]


def test_a_wrong_index_misleads_nobody(tmp_path: Path) -> None:
    path = three_segments(tmp_path / "t-0")
    with LogView(path) as view:
        wanted = everything(view)
    for index in path.glob("*.index"):
        data = index.read_bytes()
        entries = [data[at : at + 4] + (int.from_bytes(data[at + 4 : at + 8]) + 7).to_bytes(4)
                   for at in range(0, len(data), 8)]  # fmt: skip
        index.write_bytes(b"".join(entries))
    with LogView(path) as view:
        assert before(view, end_of(view), 40) == wanted[-40:]
        assert find_place(view, 455) == wanted[45].place


@pytest.mark.parametrize(
    ("byte", "mask", "problem"),
    [(16, 4, "format 6"), (6, 2, "offset of the next segment"), (7, 32, "offset goes back")],
)
def test_last_batch_of_a_segment_that_contradicts_its_place_has_a_problem(
    tmp_path: Path, byte: int, mask: int, problem: str
) -> None:
    path = tmp_path / "t-0"
    sound = write_segment(path, 0, batches(0, 30, 10))
    write_segment(path, 300, batches(300, 1, 10))
    content = bytearray(sound.read_bytes())
    content[sum(map(len, batches(0, 29, 10))) + byte] ^= mask
    sound.write_bytes(content)
    with LogView(path) as view:
        rows = everything(view)
        assert [row.problem for row in rows] == [""] * 29 + [problem, ""]
        assert before(view, end_of(view), len(rows)) == rows


def test_damage_is_a_row_and_the_walk_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    parts = batches(0, 60, 10)
    sound = write_segment(path, 0, parts, interval=400)
    write_segment(path, 600, batches(600, 1, 10))
    place = sum(map(len, parts[:20]))
    with sound.open("r+b") as file:
        file.seek(place + 30)
        file.write(b"\xff")  # in batch 20: its checksum
        file.seek(sum(map(len, parts[:30])) + 8)
        file.write(b"\0\0\0\0")  # the size of batch 30
    with LogView(path) as view:
        rows = everything(view)
        assert [row.base_offset for row in rows if row.problem == "damaged"] == [200]
        (hole,) = [row for row in rows if row.problem == "not a batch"]
        assert hole.place.position == sum(map(len, parts[:30])) and not hole.is_batch
        assert rows[-1].base_offset == 600 and len(rows) > 50  # the index knew where to go on
        assert before(view, end_of(view), len(rows)) == rows


@pytest.mark.parametrize("size", [100_000, 3 << 20])
def test_large_batches(tmp_path: Path, size: int) -> None:
    """Larger than what is read at once; of the largest only the header is looked at."""
    write_segment(tmp_path / "t-0", 0, [batch(n, [(5000 + n, b"k", b"x" * size)]) for n in range(4)])
    with LogView(tmp_path / "t-0") as view:
        before_bytes = read_bytes()
        rows = everything(view)
        if size > 1 << 20:
            assert read_bytes() - before_bytes < 2 << 20
    assert [(row.base_offset, row.last_offset, row.records, row.timestamp) for row in rows] == [
        (n, n, 1, 5000 + n) for n in range(4)
    ]
    assert {row.problem for row in rows} == ({"not checked"} if size > 1 << 20 else {""})


def test_a_size_that_nothing_bears_out_is_not_read(tmp_path: Path) -> None:
    """A header that claims two gigabytes of a file that ends before, and one of a sparse file that has them."""
    path = tmp_path / "t-0"
    file = write_segment(path, 0, batches(0, 3, 10))
    write_segment(path, 100, batches(100, 1, 10))
    end = file.stat().st_size
    with file.open("r+b") as data:
        data.seek(end)
        data.write(batch(30, [b"x"])[:8] + (2_000_000_000 - 12).to_bytes(4) + batch(30, [b"x"])[12:])
        data.truncate(2_000_000_000 + end)
    with LogView(path) as view:
        start = read_bytes()
        rows = everything(view)
        assert read_bytes() - start < 4 << 20
    assert [row.problem for row in rows] == ["", "", "", "not checked", ""]


def test_little_is_read_of_a_huge_log(tmp_path: Path) -> None:
    """Eighty segments with holes of two gigabytes: a screenful costs some chunks, wherever it is."""
    path = tmp_path / "huge-0"
    for base in range(0, 80_000, 1000):
        file = write_segment(path, base, batches(base, 100, 10), interval=512)
        with file.open("r+b") as data:
            data.truncate(2_000_000_000 if base < 79_000 else file.stat().st_size)
    start = read_bytes()
    with LogView(path) as view:
        assert view.size > 140 << 30
        for offset in (0, 79_995, 40_500, 41_000, 12_345):
            place = find_place(view, offset)
            assert after(view, place, 1)[0].base_offset == offset // 10 * 10
            assert len(after(view, place, 40)) == min(40, (80_000 - offset) // 10 + 1)
            rows = before(view, place, 40)
            assert len(rows) == (40 if offset else 0)
    assert read_bytes() - start < 8 << 20


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_field_that_runs_over_the_end_of_an_old_message_is_said_to(tmp_path: Path, part: str) -> None:
    over = b"\x00\x00\x03\xe8" + b"x" * 20
    key, value = (over, b"") if part == "key" else (b"\x00\x00\x00\x01k", over)
    body = b"\x01\x00" + (1000).to_bytes(8, "big") + key + value
    message = crc32(body).to_bytes(4, "big") + body
    log = write_segment(tmp_path / "t-0", 0, [])
    log.write_bytes(bytes(8) + len(message).to_bytes(4, "big") + message)
    with LogView(tmp_path / "t-0") as view:
        (row,) = everything(view)
        level = record_level(view, row)
        (shown,) = level.after(0, 10)
        said = [text_of(column.get(shown.thing), column.kind) for column in level.columns]
        assert f"damaged: the {part} runs past the end of its message" in said
        fields = dict(one.thing for one in FieldLevel(view, shown.thing).after(0, 10))
        assert str(fields[part]).startswith("damaged")


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("number", [0, 11, 29])
@pytest.mark.parametrize("interval", [200, 1 << 30])
def test_every_sound_batch_around_damage_is_a_row(tmp_path: Path, interval: int, number: int, kind: str) -> None:
    """With a dense index and with an empty one; the damaged one, or the one behind it, is a row that says so."""
    path = three_segments(tmp_path / "t-0", interval=interval)
    position = damage(path / f"{300:020d}.log", number, kind)
    with LogView(path) as view:
        rows = everything(view)
    wrong = Place(300, position)
    assert [row.base_offset for row in rows if row.place != wrong] == [
        base + 10 * at for base in (0, 300, 600) for at in range(30) if (base, at) != (300, number)
    ]
    is_last = number == 29 and kind.startswith("base offset higher")
    assert is_last or any(row.problem for row in rows if row.place.segment == 300)
