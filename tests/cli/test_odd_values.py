"""Values of options, and lines of input, at the edge of what a number, a name or a stack holds: a message each."""

import os
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli.main import run
from kafkalog.errors import FormatError, RecordTooLarge
from kafkalog.tools.produce import text as produce
from kafkalog.tools.produce.json_lines import JsonProducer, parse_record
from tests.builder import R, batch, frame
from tests.commands import ok

HUGE = "9" * 30
NOT_UTF_8 = "\udcff"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Topic t with a record."""
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        log.append(b"a")
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("consume -t t -c " + HUGE, "-c"),
        ("consume -t t -o s@\u00b2", "is not a time"),
        ("consume -t t -o s@" + HUGE, "is not a time"),
        ("consume -t t -G " + NOT_UTF_8, "-G"),
        ("offsets get -t t --time \u00b2", "--time"),
        ("offsets get -t t --time -4", "--time"),
        ("offsets get -t t --time noon", "2026-11-20 (UTC if no zone is given), or milliseconds since 1970"),
        ("offsets get -t t --time " + HUGE, "--time"),
        ("offsets reset -t t -G g --to-datetime " + HUGE, "--to-datetime"),
        ("produce -t t -H " + NOT_UTF_8 + "=1", "-H"),
    ],
)
def test_wrong_usage(data: Path, capsys: pytest.CaptureFixture[str], line: str, says: str) -> None:
    assert run([*line.split(), "-d", str(data), *(["--cursors", str(data)] if "offsets reset" in line else [])]) == 2
    printed = capsys.readouterr()
    assert says in printed.err and not printed.out


@pytest.mark.parametrize("time", ["\u00b2", HUGE])
def test_a_time_is_the_same_thing_in_every_command(
    data: Path, capsys: pytest.CaptureFixture[str], time: str
) -> None:
    assert run(["retain", str(data), "--now", time]) == 2
    assert "--now" in capsys.readouterr().err


@pytest.mark.parametrize(
    "line", ["consume -t t -d DATA", "consume -t t -s string -d DATA", "dump --deep-iteration -J DATA/t-0",
             "dump --deep-iteration DATA/t-0"],
)  # fmt: skip
def test_a_codec_that_is_none_is_damage_and_no_wrong_usage(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], line: str
) -> None:
    (tmp_path / "t-0").mkdir()
    damaged = frame(b"zz", count=1, last_delta=0, base_offset=1, attributes=6)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(batch([R(b"a")]) + damaged)
    assert run(line.replace("DATA", str(tmp_path)).split()) == 1
    assert b"unknown compression id 6" in capsysbinary.readouterr().err


LINES = [f'{{"ts":{HUGE}}}', f'{{"partition":{HUGE}}}', "[" * 100_000, '{"key":' * 9_000]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_a_json_line_that_no_record_can_hold(line: str) -> None:
    with pytest.raises(FormatError, match="line 2 is not a record"):
        parse_record(line.encode(), "stdin", 2)


def test_a_json_line_without_an_end_is_not_kept_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"payload":"a"}\n{"payload":"' + b"x" * 200_000)
    producer = JsonProducer([], batch_bytes=100, milliseconds=lambda: 0, max_record_bytes=100)
    with path.open("rb") as file, pytest.raises(RecordTooLarge, match="line 1 has 66136 bytes or more") as refused:
        os.lseek(file.fileno(), 16, os.SEEK_SET)
        producer.read_lines(file.fileno(), "lines")
    assert refused.value.path == "lines"


def test_a_linger_time_beyond_what_the_system_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    class Poll:
        def register(self, fd: int, events: int) -> None:
            pass

        def poll(self, ms: float) -> list[tuple[int, int]]:
            asked.append(ms)
            return []

    monkeypatch.setattr(produce.select, "poll", Poll)
    lull = produce._LingerTimer(0, 9_999_999_999)
    lull.pending = True
    assert lull.passed() and max(asked) == 2**31 - 1


def test_a_path_that_is_not_utf_8_is_printed_where_the_locale_is_strict(tmp_path: Path) -> None:
    folder = tmp_path / f"d{NOT_UTF_8}"
    with kafkalog.open(folder / "t-0", "a"):
        pass
    for line in ("ls -d", "topics describe -t t -d"):
        assert b"d\xff" in ok(*line.split(), folder, PYTHONIOENCODING="utf-8:strict")
