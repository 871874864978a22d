"""The reference's dump tool and kafkalog's print the same for kafkalog's files."""

import os
from pathlib import Path

import pytest

import kafkalog
from tests.interop import ours
from tests.interop.reference import Reference

LINES = 200_000
SEGMENT_BYTES = 1 << 20
DEMO_LINES = int(os.environ.get("LINES", "1000000"))
DEMO_SEGMENT_BYTES = max(10 * DEMO_LINES, 1 << 20)  # of several segments, as of the whole demo
T0 = 1_700_000_000_000


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition of several segments, made by `kafkalog produce`."""
    directory, _ = ours.produce_demo(tmp_path_factory.mktemp("dump") / "data", "tp_demo_05", LINES, SEGMENT_BYTES)
    assert len(list(directory.glob("*.log"))) > 3
    return directory


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with keys, headers, nulls, bytes that are no text, and times that go back."""
    directory = ours.partition(tmp_path_factory.mktemp("mixed"), "mixed-0")
    with kafkalog.open(directory, "a", index_interval_bytes=100) as log:
        log.append([(b"key", b"value", T0), (None, None, T0 - 5), (b"", b"", T0 + 9)])
        log.append([(b"\xff\xfe", b"\x00\xc3\x28\xf0\x9f", T0 + 4), (b"k", "π€🎉".encode(), T0 + 4)])
        log.append([(b"k", b"v", T0 + 20, [("h", b"\x80x"), ("h", None), ("", b"")])])
        for i in range(200):
            log.append([(b"%d" % i, b"%d" % (i * i), T0 + i - 40 * (i % 3))])
    return directory


def assert_same_dump(reference: Reference, directory: Path, suffix: str, *options: str) -> None:
    compared = 0
    for file in sorted(directory.glob(f"*{suffix}")):
        printed, _ = reference.dump(file, *options)
        assert ours.command("dump", *options, "--files", str(file)) == printed, file.name
        compared += 1
    assert compared


@pytest.mark.parametrize("options", [ours.DEEP, ("--deep-iteration",), ("--print-data-log",), ()], ids="-".join)
@pytest.mark.parametrize("made", ["demo", "mixed"])
def test_dump_of_a_log(
    reference: Reference, request: pytest.FixtureRequest, made: str, options: tuple[str, ...]
) -> None:
    assert_same_dump(reference, request.getfixturevalue(made), ".log", *options)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("made", ["demo", "mixed"])
def test_dump_of_an_index(reference: Reference, request: pytest.FixtureRequest, made: str, suffix: str) -> None:
    assert_same_dump(reference, request.getfixturevalue(made), suffix)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("made", ["demo", "mixed"])
@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_our_indexes_pass_the_checks_of_the_reference(
    reference: Reference, request: pytest.FixtureRequest, made: str, suffix: str, check: str
) -> None:
    for file in sorted(request.getfixturevalue(made).glob(f"*{suffix}")):
        printed, complaints = reference.dump(file, check)
        assert complaints == b"", file.name
        assert b"mismatch" not in printed.lower() and b"Found" not in printed, printed[:500]


def test_dump_of_a_log_that_is_open(reference: Reference, tmp_path: Path) -> None:
    """Active indexes are preallocated: behind their entries stand zeros, which neither tool may take for entries."""
    directory = ours.partition(tmp_path, "open-0")
    with kafkalog.open(directory, "a", index_interval_bytes=100, segment_index_bytes=4096) as log:
        for i in range(100):
            log.append([(b"key", b"value %d" % i, T0 + i)] * 3)
        for suffix, options in [(".log", ours.DEEP), (".index", ()), (".timeindex", ())]:
            assert_same_dump(reference, directory, suffix, *options)
        log.roll()
        log.append(b"in a new segment, whose indexes have no entry")
        for suffix, options in [(".log", ours.DEEP), (".index", ()), (".timeindex", ())]:
            assert_same_dump(reference, directory, suffix, *options)


@pytest.mark.slow
def test_dump_of_the_whole_demo(reference: Reference, tmp_path: Path) -> None:
    """Every file of the demo's log, deep and with its data; `LINES=10000000` is the whole of it."""
    directory, sha = ours.produce_demo(tmp_path / "data", "tp_demo_05", DEMO_LINES, DEMO_SEGMENT_BYTES)
    with reference.open(directory, {"segment.bytes": DEMO_SEGMENT_BYTES}, clean=True) as log:
        digest = log.digest()
    assert (digest["count"], digest["sha256"]) == (DEMO_LINES, sha)
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    for file in sorted(path for path in directory.iterdir() if path.suffix in ours.COMPARED):
        options = ours.DEEP if file.suffix == ".log" else ()
        reference.dump_to(theirs, tmp_path / "err", file, *options)
        ours.command("dump", *options, "--files", str(file), out=mine)
        assert same_content(theirs, mine), file.name


def same_content(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as a, other.open("rb") as b:
        return all(chunk == b.read(1 << 20) for chunk in iter(lambda: a.read(1 << 20), b""))
