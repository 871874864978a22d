"""The reference writes; we read and look up the same, and go on where its marker vouches for the log."""

import shutil
from pathlib import Path

import pytest

import kafkalog
from tests.interop import ours
from tests.interop.reference import RecordTuple, Reference, ReferenceLog, Rule

T0 = 1_700_000_000_000
SETTINGS = {"internal.segment.bytes": 25_000, "index.interval.bytes": 700, "segment.index.bytes": 4096}
GROWING = Rule(5000, 11, T0, step_ms=7)
TWO_CLOCKS = Rule(5000, 3, T0, step_ms=7, back_ms=3000, back_every=5)
RULES = {"growing": GROWING, "two_clocks": TWO_CLOCKS}


@pytest.fixture(scope="module", params=RULES)
def rule(request: pytest.FixtureRequest) -> Rule:
    return RULES[request.param]


@pytest.fixture(scope="module")
def written(reference: Reference, rule: Rule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition directory that the reference wrote and closed, with the marker in its parent."""
    directory = tmp_path_factory.mktemp("written") / "data" / "theirs-0"
    log = reference.open(directory, SETTINGS, clean=True)
    log.fill(rule)
    log.close(marker=True)
    assert len(list(directory.glob("*.log"))) > 3
    return directory


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written.parent, tmp_path / "data")) / written.name


def expected(rule: Rule) -> list[RecordTuple]:
    return [(i, rule.timestamp(i), None, rule.value(i), ()) for i in range(rule.fields["count"])]


def test_we_read_the_values_of_the_reference(written: Path, rule: Rule) -> None:
    assert ours.records(written) == expected(rule)


def test_reading_changes_no_byte(written: Path, rule: Rule) -> None:
    before = ours.files(written)
    ours.times(written, [T0, T0 + 5])
    ours.offsets(written, [0, 100])
    assert ours.files(written) == before


def test_lookups_are_those_of_the_reference(reference: Reference, copy: Path, written: Path, rule: Rule) -> None:
    offsets = list(range(0, 5000, 13))
    times = [-1, -2, -3, *(T0 + t for t in range(-4000, 5000 * 7 + 100, 61))]
    with reference.open(copy, SETTINGS, clean=True) as log:
        assert ours.offsets(written, offsets) == log.offsets(offsets)
        assert ours.times(written, times) == log.times(times)


def test_segments_are_those_of_the_reference(reference: Reference, copy: Path, written: Path) -> None:
    with reference.open(copy, SETTINGS, clean=True) as log, kafkalog.open(written) as mine:
        theirs = log.deep_state()["segments"]
        assert [(s.base_offset, s.size) for s in mine.segments] == [(s["base_offset"], s["size"]) for s in theirs]
        for ours_, theirs_ in zip(mine.segments, theirs, strict=True):
            assert [[e.offset, e.position] for e in ours_.index] == theirs_["offset_index"]
            assert [[e.timestamp, e.offset] for e in ours_.time_index] == theirs_["time_index"]


def test_we_go_on_after_a_clean_stop(reference: Reference, copy: Path, rule: Rule) -> None:
    """Marker present: "a" appends at the reference's end offset; the reference then reads all of it."""
    with kafkalog.open(copy, "a") as log:
        info = log.append([(b"k", b"ours %d" % i, T0 + i) for i in range(10)])
        assert (info.first_offset, info.last_offset) == (5000, 5009)
        log.roll()
        assert log.append((b"k", b"ours 10", T0 + 10)).first_offset == 5010
    assert (copy.parent / ".kafka_cleanshutdown").exists()
    before = ours.files(copy)
    theirs = reference.open(copy, SETTINGS, clean=True)
    assert theirs.read() == [
        *expected(rule),
        *((5000 + i, T0 + i, b"k", b"ours %d" % i, ()) for i in range(11)),
    ]
    theirs.close()
    assert ours.files(copy) == before


def test_reopening_for_append_without_a_write_changes_no_byte(copy: Path) -> None:
    before = ours.files(copy)
    kafkalog.open(copy, "a").close()
    assert ours.files(copy) == before


def test_without_the_marker_append_recovers_what_was_undamaged(copy: Path, rule: Rule) -> None:
    (copy.parent / ".kafka_cleanshutdown").unlink()
    logs = {name: data for name, data in ours.files(copy).items() if name.endswith(".log")}
    kafkalog.open(copy, "a").close()
    assert {name: data for name, data in ours.files(copy).items() if name.endswith(".log")} == logs
    assert ours.records(copy) == expected(rule)


def test_we_follow_a_log_that_the_reference_is_writing(reference: Reference, tmp_path: Path) -> None:
    """Its active indexes are preallocated with zeros, its segments roll, its start moves up: "r" follows."""
    directory = tmp_path / "data" / "live-0"
    with reference.open(directory, SETTINGS, clean=True) as writing:
        write_some(writing, 0)
        with kafkalog.open(directory) as log:
            assert [r.offset for r in log.records()] == list(range(1000))
            assert log[500].value == b"500"
            for start in range(1000, 6000, 1000):
                write_some(writing, start)
                assert [r.value for r in log.records(start)] == [b"%d" % i for i in range(start, start + 1000)]
                hit = log.offset_for_time(T0 + start + 10)
                assert hit is not None and hit.offset == start + 10
            writing.ask("truncate_to", offset=5500)
            assert [r.offset for r in log.records(5000)] == list(range(5000, 5500))


def write_some(log: ReferenceLog, start: int) -> None:
    log.append(*([(T0 + i, None, b"%d" % i)] for i in range(start, start + 1000)))
