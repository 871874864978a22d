"""`kafkalog report`: where the page goes, what is said, and what it leaves alone."""

import os
from pathlib import Path

import pytest

import kafkalog
from tests.commands import kafkalog as run
from tests.pages import shape_of
from tests.raw_batches import batches, write_segment


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("orders-0", "orders-1", "users-0"):
        write_segment(tmp_path / "data" / name, 0, batches(0, 20, 10, timestamp=1_795_176_000_000))
    return tmp_path / "data"


def test_a_page_and_a_note(data: Path, tmp_path: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in data.rglob("*"))
    done = run("report", data, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"3 partitions in report.html\n")
    text = (tmp_path / "report.html").read_text()
    assert "orders-1" in text and "users" in text and text.endswith("</html>\n")
    assert sorted((path, path.stat().st_mtime_ns) for path in data.rglob("*")) == before
    assert sorted(os.listdir(tmp_path)) == ["data", "report.html"]


def test_options(data: Path, tmp_path: Path) -> None:
    done = run("report", "-d", data, "-t", "users", "-o", "-", "-q", "--no-keys", "--exact")
    assert done.returncode == 0 and done.stderr == b""
    assert b"users-0" in done.stdout and b"orders" not in done.stdout and b"Most frequent keys" not in done.stdout
    assert b"Most frequent keys" in run("report", data / "orders-0", "-o", "-").stdout


def test_counts_by_a_path_are_a_section(data: Path, tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "typed-0", "a") as log:
        log.append([b'{"a": {"b": "%s"}}' % (b"<b>&x", b"y")[n % 2] for n in range(10)] + [b"bad"])
    done = run("report", data, "-t", "typed", "-o", "-", "--by", "value.a.b", "-s", "value=json", "--top", "1")
    text = shape_of(done.stdout.decode()).text
    assert done.returncode == 0 and "Records by value.a.b" in text
    assert "11" not in text.partition("Records by value.a.b")[2].partition("Topics")[0].replace("10 records", "")
    for said in ("<b>&x", "(1 other value)", "(not decoded)", "10 records; 2 different values; 1 record not decoded"):
        assert said in text, said
    assert "Records by" not in run("report", data, "-o", "-").stdout.decode()
    whole = run("report", data, "-o", "-", "--by", "partition").stdout.decode()
    assert shape_of(whole).open == [] and shape_of(whole).text.count("400 records; 2 different values") == 1
    wrong = run("report", data, "-t", "typed", "-o", "-", "--by", "value.a.b")
    assert wrong.returncode == 1 and b"not counted by value.a.b: topic typed: value is bytes" in wrong.stdout
    assert run("report", data, "-o", "-", "--by", "vlue").returncode == 2


def test_damage_is_in_the_page_and_in_the_status(data: Path, tmp_path: Path) -> None:
    path = data / "orders-0" / f"{0:020d}.log"
    path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    write_segment(data / "orders-0", 200, batches(200, 5, 10))
    done = run("report", data, "-o", tmp_path / "page.html")
    assert done.returncode == 1 and b"1 problem, see the page" in done.stderr
    assert "size field" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nowhere"], 1, "no such directory"), (["DATA", "-t", "nobody"], 1, "no topic nobody"), ([], 2, "give -d DIR"),
        (["DATA", "-o", "no/such/place.html"], 1, "cannot write the report"),
    ],
)  # fmt: skip
def test_what_is_not_there(data: Path, arguments: list[str], status: int, said: str) -> None:
    done = run("report", *[one.replace("DATA", str(data)) for one in arguments], cwd=data.parent)
    assert done.returncode == status and said in done.stderr.decode()
