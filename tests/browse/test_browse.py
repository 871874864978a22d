"""The browser as it is used: keys pressed with Textual's pilot, the screen read as text."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

import kafkalog
from kafkalog.browse.app import BrowseApp
from kafkalog.browse.fitting import fit_columns
from kafkalog.browse.search import find_key, parse_key
from kafkalog.browse.start import BrowseOptions, make_app
from kafkalog.inspect.rows import Column
from kafkalog.inspect.width import columns_of
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.consume.decoded import Serdes
from kafkalog.tools.directories import partitions_below
from tests.commands import environment
from tests.commands import kafkalog as command
from tests.raw_batches import batches, write_segment

Steps = Callable[["Screen"], Awaitable[None]]
NASTY = b"\x1b[31mred\x07\xe2\x80\xae[bold]x[/bold]"


def luminance(rgb: tuple[int, int, int]) -> float:
    """The relative luminance of a colour, as WCAG has it."""
    red, green, blue = (part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in rgb)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


class Screen:
    """The browser while keys are pressed."""

    def __init__(self, app: BrowseApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    async def wait_until_idle(self) -> None:
        for _ in range(3):
            await self.pilot.pause()
            await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await self.wait_until_idle()

    async def ask(self, key: str, text: str) -> None:
        await self.press(key)
        self.app.query_one("#ask", Input).value = text
        await self.press("enter")

    def rows(self) -> list[list[str]]:
        pages = self.app.pages
        return [[str(cell) for cell in pages.get_row_at(at)] for at in range(pages.row_count)]

    def heads(self) -> list[str]:
        return [str(column.label) for column in self.app.pages.ordered_columns]

    def current(self) -> list[str]:
        return self.rows()[self.app.pages.cursor_row]

    def text(self, name: str) -> str:
        return str(self.app.query_one(f"#{name}", Static).content)


def browse(
    path: Path, steps: Steps, size: tuple[int, int] = (100, 24), options: BrowseOptions | None = None
) -> str:
    """Return the final screen, as SVG."""

    async def run() -> str:
        app = make_app(partitions_below([str(path)]), options=options or BrowseOptions())
        async with app.run_test(size=size) as pilot:
            screen = Screen(app, pilot)
            await screen.wait_until_idle()
            await steps(screen)
            return app.export_screenshot()

    return asyncio.run(run())


def shown_lines(svg: str) -> str:
    """The text of a screenshot."""
    return re.sub(r"<[^>]*>", "", svg).replace("&#160;", " ")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of `orders` (3000 records in batches of 10, three segments), one with odd bytes."""
    for base in (0, 1000, 2000):
        write_segment(tmp_path / "orders-0", base, batches(base, 100, 10, timestamp=1_795_176_000_000), interval=500)
    with kafkalog.open(tmp_path / "orders-1", "a") as log:
        log.append([(NASTY, b"value\n" + NASTY), (b"\xff\x00", None), (None, "日本".encode() * 40)])
    return tmp_path


def test_out_of_a_level_while_the_next_one_is_read(data: Path) -> None:
    """What was read is not put on top of the level that the user went back to."""
    is_reading, may_go_on = threading.Event(), threading.Event()

    def slow(value: bytes) -> str:
        is_reading.set()
        may_go_on.wait(30)
        return "decoded"

    async def steps(screen: Screen) -> None:
        await screen.press("enter", "enter")
        await screen.pilot.press("enter")
        await asyncio.to_thread(is_reading.wait, 30)
        await screen.pilot.press("left")
        may_go_on.set()
        await screen.wait_until_idle()
        assert screen.text("path") == "partitions > orders-0" and [row[0] for row in screen.rows()][1] == "1,000"

    browse(data, steps, options=BrowseOptions(Serdes(value=slow)))


def test_down_to_a_record_and_out_again(data: Path) -> None:
    async def steps(screen: Screen) -> None:
        assert [row[:2] for row in screen.rows()] == [["orders", "0"], ["orders", "1"]]
        await screen.press("enter")
        assert screen.heads()[0] == "base offset" and [row[0] for row in screen.rows()] == ["0", "1,000", "2,000"]
        assert "offsets [0, 3,000)" in screen.text("note")
        await screen.press("down", "enter")
        assert screen.current()[:3] == ["1,000", "1,009", "10"] and "33.3% into the log" in screen.text("note")
        await screen.press("enter", "down", "down")
        assert screen.current()[:2] == ["1,002", "k1002"]
        await screen.press("enter")
        assert ["key", "k1002"] in screen.rows() and screen.text("path").endswith("batch 1000 > record 1002")
        await screen.press("left", "escape", "backspace", "left")
        assert len(screen.rows()) == 2 and screen.text("path") == "partitions"

    browse(data, steps)


def test_a_screenful_at_a_time(data: Path) -> None:
    """Never more rows than the screen has; over the edges of segments, both ways."""

    async def steps(screen: Screen) -> None:
        await screen.press("enter", "enter")
        height = screen.app.height
        assert len(screen.rows()) == height < 22
        seen = [row[0] for row in screen.rows()]
        for _ in range(8):
            await screen.press("pagedown")
            assert len(screen.rows()) == height
            seen += [row[0] for row in screen.rows()]
        assert seen == [f"{n:,}" for n in range(0, 90 * height, 10)] and "1,000" in seen
        await screen.press("pageup")
        assert screen.rows()[0][0] == f"{70 * height:,}"
        await screen.press("end")
        assert screen.current()[0] == "2,990" and len(screen.rows()) == height
        await screen.press("down", "pagedown")
        assert screen.current()[0] == "2,990"
        await screen.press("home")
        assert screen.current()[0] == "0"
        await screen.press("up", "pageup")
        assert screen.current()[0] == "0" and len(screen.rows()) == height
        await screen.press(*["down"] * height)
        assert screen.rows()[0][0] == "10" and screen.current()[0] == f"{10 * height:,}"

    browse(data, steps)


def test_search_by_offset_and_time(data: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("o")
        assert "open a partition first" in screen.text("note")
        await screen.press("enter")
        await screen.ask("o", "1,234")
        assert screen.current()[:2] == ["1,234", "k1234"]
        await screen.ask("o", "-1")
        assert screen.current()[0] == "2,999"
        await screen.ask("o", "3001")
        assert "out of range" in screen.text("note").lower() or "3000" in screen.text("note")
        await screen.ask("o", "word")
        assert "is not an offset" in screen.text("note")
        await screen.ask("t", "2026-11-20T12:00:01.500Z")
        assert screen.current()[0] == "1,500"
        await screen.ask("t", "2030-01-01")
        assert "no record" in screen.text("note")
        await screen.ask("t", "noon")
        assert "not a time" in screen.text("note")
        await screen.press("left")
        assert screen.current()[0] == "1,500" and "batches" in screen.text("path")

    browse(data, steps)


def test_search_by_key_goes_on(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for n in range(60):
            log.append([(b"k%d" % (i % 50), b"v") for i in range(n * 10, n * 10 + 10)], compression="zstd")
        log.append([(b"\xffodd", b"v")])

    async def steps(screen: Screen) -> None:
        await screen.press("n")
        assert "no key" in screen.text("note")
        await screen.ask("slash", "k33")
        assert screen.current()[:2] == ["33", "k33"]
        await screen.press("n", "n")
        assert screen.current()[0] == "133"
        await screen.ask("slash", "\\xffodd")
        assert screen.current()[0] == "600"
        await screen.press("n")
        assert "not found from offset 601" in screen.text("note")
        await screen.ask("slash", "nobody")
        assert "not found from" in screen.text("note") and screen.current()[0] == "600"

    browse(tmp_path, steps)


def test_a_search_is_bounded_and_can_be_ended(data: Path) -> None:
    with LogView(data / "orders-0") as view:
        asked: list[tuple[int, int]] = []
        found = find_key(view, b"nobody", 0, lambda offset, read: not asked.append((offset, read)), most_bytes=20_000)
        assert not found.is_done and found.offset is None and 0 < found.next_offset < 3000
        again = find_key(view, b"k2500", found.next_offset, lambda offset, read: True)
        assert (again.offset, again.is_done) == (2500, True)
        ended = find_key(view, b"k2500", 0, lambda offset, read: read == 0)
        assert ended.offset is None and not ended.is_done
    assert parse_key("a\\x00\\\\b") == b"a\x00\\b"


@pytest.mark.parametrize("size", [(60, 16), (30, 8), (200, 50)])
def test_narrow_and_wide_screens(data: Path, size: tuple[int, int]) -> None:
    async def steps(screen: Screen) -> None:
        for _ in range(4):
            pages = screen.app.pages
            widths = [column.get_render_width(pages) for column in pages.ordered_columns]
            assert sum(widths) <= size[0] and len(screen.rows()) <= size[1]
            await screen.press("enter")

    browse(data, steps, size)


def test_a_resize_shows_another_number_of_rows(data: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("enter", "enter", "pagedown")
        first = screen.rows()[0]
        await screen.pilot.resize_terminal(60, 12)
        await screen.wait_until_idle()
        assert len(screen.rows()) == screen.app.height < 10 and screen.rows()[0][0] == first[0]

    browse(data, steps)


def test_nothing_from_data_reaches_the_terminal(data: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("down", "enter", "enter", "enter")
        assert screen.rows()[0][1].startswith("\\x1b[31mred\\x07\\u202e[bold]x")
        assert screen.rows()[1][1:3] == ["\\xff\\x00", "null"]
        await screen.press("enter")

    svg = browse(data, steps)
    assert "\x1b" not in svg and "\u202e" not in svg and "[bold]" in shown_lines(svg)


def test_without_colour(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The selection is visible all the same."""
    monkeypatch.setenv("NO_COLOR", "1")

    async def steps(screen: Screen) -> None:
        await screen.press("enter")
        assert screen.app.no_color

    svg = browse(data, steps, (60, 16))
    colours = {(one[:2], one[2:4], one[4:6]) for one in re.findall(r'fill: ?#([0-9a-f]{6})', svg)}
    assert colours and all(max(int(x, 16) for x in one) - min(int(x, 16) for x in one) <= 3 for one in colours)
    assert "font-weight: bold" in svg or "bold" in svg


def test_damage_is_told(data: Path) -> None:
    path = data / "orders-0" / "00000000000000000000.log"
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff\xff")
        file.seek(0, os.SEEK_END)

    async def steps(screen: Screen) -> None:
        await screen.press("enter", "enter")
        assert "damaged" in screen.current() and len(screen.rows()) == screen.app.height
        await screen.press("enter")
        assert "checksum" in screen.text("note") or "damaged" in screen.text("note")
        await screen.press("left")
        await screen.ask("slash", "k5")
        assert "CRC" in screen.text("note")

    browse(data, steps)


def test_what_a_writer_adds_is_seen(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "live-0", "a") as log:
        log.append([b"one"])

        async def steps(screen: Screen) -> None:
            await screen.press("enter")
            log.append([b"two"])
            await screen.press("end")
            assert screen.current()[0] == "1"

        browse(tmp_path, steps)


def test_a_partition_that_is_gone_is_a_line(data: Path) -> None:
    async def steps(screen: Screen) -> None:
        os.rename(data / "orders-0", data.parent / "gone")
        await screen.press("enter")
        assert "the partition directory does not exist" in screen.text("note") and len(screen.rows()) == 2

    try:
        browse(data, steps)
    finally:
        os.rename(data.parent / "gone", data / "orders-0")


def test_columns_that_do_not_fit_are_left_out() -> None:
    columns = [Column("name", lambda one: one[0], "name"), Column("size", lambda one: one[1], "number"),
               Column("more", lambda one: one[2], "number")]  # fmt: skip
    things = [("a-very-long-name-" * 3, 1_234_567, 1_234_567)]
    for width, count in ((200, 3), (40, 3), (30, 2), (10, 1)):
        heads, rows = fit_columns(columns, things, width)
        assert len(heads) == len(rows[0]) == count
        assert sum(columns_of(cell) + 2 for cell in rows[0]) <= max(width, 10)
        assert [wide for _, wide in heads] == [columns_of(cell) for cell in rows[0]]


def test_columns_have_their_width_before_the_first_paint(data: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.press("enter", "enter")
        screen.app._show(screen.app.frame)  # no pause behind it: what a busy app paints
        for at, column in enumerate(screen.app.pages.ordered_columns):
            cells = [screen.heads()[at], *(row[at] for row in screen.rows())]
            assert column.get_render_width(screen.app.pages) >= max(map(columns_of, cells)) + 2

    browse(data, steps)


def test_what_is_in_a_record_is_read_in_60_columns(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.append([(b"customer-%d" % n, b'{"order": %d, "cents": 100, "paid": true}' % n) for n in range(40)])

    async def steps(screen: Screen) -> None:
        await screen.press("enter", "enter")
        assert screen.heads() == ["offset", "key", "value", "size"]
        assert screen.rows()[5][:2] == ["5", "customer-5"] and '{"order": 5, "cents":' in screen.rows()[5][2]

    browse(tmp_path, steps, (60, 14))


def test_the_row_under_the_cursor_is_read_easily(data: Path) -> None:
    async def steps(screen: Screen) -> None:
        style = screen.app.pages.get_component_styles("datatable--cursor")
        light, dark = sorted((luminance(one.rgb) for one in (style.color, style.background)), reverse=True)
        assert style.text_style.reverse and (light + 0.05) / (dark + 0.05) > 7

    browse(data, steps)


def test_without_a_terminal_it_says_so(data: Path) -> None:
    done = command("browse", data)
    assert done.returncode == 1 and b"terminal" in done.stderr and b"Traceback" not in done.stderr
    assert command("browse").returncode == 2
    with kafkalog.open(data / "orders-1") as log, pytest.raises(kafkalog.errors.IllegalState):
        if sys.stdin.isatty() and sys.stdout.isatty():
            raise kafkalog.errors.IllegalState("a terminal is there")
        log.browse()


def test_a_log_is_browsed_by_a_schema(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr("kafkalog.browse.start.browse", lambda *given: started.append(given[2]))
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k", bytes([4]) + b"hi"), (b"k", bytes([4]) + b"ho")])
        log.browse(value="avro", schema='"string"')
        (options,) = started
        assert options.serdes.value(log[0].value) == "hi"
        found = options.select("value == 'ho'", lambda root: [], "t")
        assert log.scan(where=found.expression, value="avro", schema='"string"').table()["offset"].to_pylist() == [1]
        with pytest.raises(kafkalog.errors.IllegalArgument, match="no decoder takes it"):
            log.browse(value="string", schema='"string"')


def test_in_a_real_terminal(data: Path) -> None:
    """The command in a pseudo-terminal of 60 columns: it draws, `q` ends it with status 0."""
    import fcntl
    import pty
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
    program = subprocess.Popen(
        [sys.executable, "-m", "kafkalog", "browse", str(data)], stdin=slave, stdout=slave, stderr=slave,
        env=environment(TERM="xterm"), start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    said = b""
    try:
        while b"orders" not in said:
            said += os.read(master, 65536)
        os.write(master, b"q")
        while True:
            try:
                if not os.read(master, 65536):
                    break
            except OSError:  # the other end is closed
                break
        assert program.wait(60) == 0
    finally:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        os.close(master)
