"""The browser's list of matching records: the rows are those of the whole log, read a screenful at a time."""

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog._core.bytes.crc import crc32c
from kafkalog.browse import filtered
from kafkalog.browse.filtered import FilteredLevel, offsets_of
from kafkalog.browse.search import parse_search
from kafkalog.log.typed_keywords import select_matching
from kafkalog.storage.readonly.view import LogView
from tests.browse.test_browse import Screen, browse
from tests.browse.test_typed import json_options

RECORDS = 3000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compressed batches among plain ones, in five segments, a log start inside of a batch."""
    directory = tmp_path_factory.mktemp("data") / "t-0"
    with kafkalog.open(directory, "a", index_interval_bytes=512) as log:
        for base in range(0, RECORDS, 50):
            rows = [(b"k%d" % (n % 100), b'{"n": %d}' % n) for n in range(base, base + 50)]
            log.append(rows, compression="zstd" if base % 200 else "none")
            if base % 750 == 700:
                log.roll()
        log.delete_before(25)
    return directory


def level(
    view: LogView, text: str, start: int = 0, tell: Callable[[int, int], object] = lambda *_: None, **most: Any
) -> FilteredLevel:
    return FilteredLevel(view, offsets_of(parse_search(text), None, view), start, text, tell, **most)


def offsets(rows: list[Any]) -> list[int]:
    assert [row.anchor for row in rows] == [row.thing.offset for row in rows]
    return [row.thing.offset for row in rows]


MOVES = st.lists(st.sampled_from(["on", "back", "end", "start"]), max_size=8)


@given(
    st.sampled_from(["k7", "key like 'k1%'", "key == 'nobody'", "size > 8", "offset >= 2990 or offset < 30"]),
    st.integers(0, RECORDS), st.integers(1, 30), st.sampled_from([1, 2000, 1 << 30]), MOVES,
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_the_whole_log(
    path: Path, text: str, start: int, height: int, most_bytes: int, moves: list[str]
) -> None:
    wanted = parse_search(text)
    with kafkalog.open(path) as log, pytest.MonkeyPatch.context() as patch:
        patch.setattr(filtered, "STEP_BYTES", 700)
        expected = [
            one.offset for one in log.records(**({"where": wanted} if not isinstance(wanted, bytes) else {}))
            if one.offset >= start and (not isinstance(wanted, bytes) or one.key == wanted)
        ]  # fmt: skip
        view = LogView(str(path))
        shown = level(view, text, start, most_bytes=most_bytes)
        at = 0  # number of the match that the place is before
        anchor: Any = start
        for move in moves:
            if move == "start":
                at, anchor = 0, start
            elif move == "end":
                at, anchor = len(expected), shown.end
            elif move == "on":
                found: list[int] = []
                for _ in range(200):  # a limit of bytes ends a call early; the next one goes on
                    rows = shown.after(anchor, height - len(found))
                    found += offsets(rows)
                    anchor = rows[-1].following if rows else anchor
                    if len(found) == height or "n goes on" not in shown.note:
                        break
                assert found == expected[at : at + height]
                at += len(found)
            else:
                found = []
                for _ in range(200):
                    rows = shown.before(anchor, height - len(found))
                    found = offsets(rows) + found
                    anchor = rows[0].anchor if rows else anchor
                    if len(found) == height or "n goes on" not in shown.note:
                        break
                assert found == expected[max(at - height, 0) : at]
                at -= len(found)
        view.close()


def test_it_tells_where_it_is_and_ends_when_told(path: Path) -> None:
    class Stop(Exception):
        """The user wants no more."""

    positions: list[int] = []

    def tell(offset: int, read: int) -> None:
        positions.append(offset)
        if len(positions) > 3:
            raise Stop

    view = LogView(str(path))
    with pytest.raises(Stop):
        level(view, "key == 'nobody'", 0, tell).after(0, 10)
    assert positions == sorted({*positions})
    view.close()


def test_it_holds_the_bytes_of_its_rows_alone(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k%d" % n, b"v" * 1000) for n in range(500)])
    view = LogView(str(tmp_path / "t-0"))
    for rows in (level(view, "key like 'k%'").after(0, 5), level(view, "key like 'k%'").before(500, 5)):
        assert len(rows) == 5
        for row in rows:
            assert isinstance(row.thing, kafkalog.Record) and row.thing.value_view is not None
            assert memoryview(row.thing.value_view.obj).nbytes < 2000
    view.close()


def test_damage_is_left_out_and_told(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for n in range(9):
            log.append([(b"k", b"record %d" % n)])
    file = tmp_path / "t-0" / f"{0:020d}.log"
    file.write_bytes(file.read_bytes().replace(b"record 4", b"damaged!"))
    view = LogView(str(tmp_path / "t-0"))
    shown = level(view, "k")
    assert offsets(shown.after(0, 20)) == offsets(shown.before(9, 20)) == [0, 1, 2, 3, 5, 6, 7, 8]
    assert shown.note == "1 damaged place left out"
    view.close()


def test_a_batch_that_cannot_be_decoded_costs_no_other(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for n in range(5):
            log.append([(b"k", b"record %d" % n)])
    file = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    at = 2 * len(data) // 5
    data[at + 22] |= 4  # zstd, which it is not
    data[at + 17 : at + 21] = crc32c(bytes(data[at + 21 : 3 * len(data) // 5])).to_bytes(4, "big")
    file.write_bytes(data)
    view = LogView(str(tmp_path / "t-0"))
    for text in ("k", "key == 'k'"):
        shown = level(view, text)
        assert offsets(shown.after(0, 20)) == offsets(shown.before(5, 20)) == [0, 1, 3, 4]
        assert offsets(shown.after(1, 2)) == [1, 3] and offsets(shown.before(4, 2)) == [1, 3]
        assert shown.note == "1 damaged place left out"
    view.close()


def test_escape_ends_the_reading_on_of_a_list_and_not_the_list(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_reading = threading.Event()

    def after(self: FilteredLevel, anchor: Any, count: int) -> list[Any]:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            self._tell(anchor, 5)
            is_reading.set()
        return []

    async def steps(screen: Screen) -> None:
        await screen.ask("f", "k7")
        rows = screen.rows()
        monkeypatch.setattr(FilteredLevel, "after", after)
        await screen.pilot.press("pagedown")
        while not is_reading.is_set():
            await screen.pilot.pause()
        await screen.press("escape")
        assert screen.text("path").endswith("only k7") and screen.rows() == rows
        await screen.press("escape")
        assert "only k7" not in screen.text("path")

    browse(path, steps)


def test_r_shows_the_records_of_a_log_that_was_cut(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for _ in range(9):
            log.append([(b"other", b"v")])

        async def steps(screen: Screen) -> None:
            await screen.ask("f", "k")
            assert screen.rows() == []
            log.truncate_to(5)
            for _ in range(9):
                log.append([(b"k", b"v")])
            await screen.press("r")
            assert [row[0] for row in screen.rows()] == [str(n) for n in range(5, 14)]

        browse(tmp_path, steps)


def test_a_list_of_matches_on_the_screen(path: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.ask("f", "key == 'k7' and offset > 100")
        assert [row[:2] for row in screen.rows()][:2] == [["107", "k7"], ["207", "k7"]]
        assert screen.text("path").endswith("only key == 'k7' and offset > 100")
        assert len(screen.rows()) == screen.app.height
        await screen.press("pagedown")
        assert screen.rows()[-1][0] == "2,907"
        await screen.press("home", "down", "enter")
        assert ["offset", "207"] in screen.rows() and ["key", "k7"] in screen.rows()
        await screen.press("left", "end")
        assert screen.current()[0] == "2,907"
        await screen.press("left")
        assert len(screen.rows()) == 5, "the segments, as before"
        await screen.ask("o", "1500")
        await screen.ask("f", "k7")
        assert screen.rows()[0][:2] == ["1,507", "k7"] and len(screen.rows()) == 15
        await screen.press("right_square_bracket")
        assert screen.current()[:2] == ["1,607", "k7"] and "batch 1600" in screen.text("path")
        await screen.ask("f", "nobody")
        assert screen.rows() == [] and screen.text("note") == "(empty)"
        await screen.press("left")
        await screen.ask("f", "ofset > 5")
        assert "there is no field 'ofset'" in screen.text("note")

    browse(path, steps, (100, 25))


def test_n_reads_on_behind_a_limit_and_r_shows_what_was_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filtered, "SEARCH_BYTES", 4000)
    options = json_options()._replace(select=partial(select_matching, {"value": "json"}))
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for n in range(100):
            log.append([(b"rare" if n in (60, 61) else b"k", b'{"n": %d}' % n + b" " * 200)])

        async def steps(screen: Screen) -> None:
            await screen.ask("f", "value.n >= 60 and value.n < 62")
            assert screen.rows() == [] and "n goes on" in screen.text("note")
            for _ in range(20):
                if screen.rows():
                    break
                await screen.press("n")
            assert [row[0] for row in screen.rows()][:1] == ["60"]
            for _ in range(20):
                await screen.press("n")
            assert [row[0] for row in screen.rows()] == ["60", "61"]
            log.append([(b"k", b'{"n": 60}')])
            await screen.press("r", "end")
            assert screen.current()[0] == "100"

        browse(tmp_path, steps, (100, 24), options)
