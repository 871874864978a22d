"""The instrument is checked first: our programs give what the capture holds of the same Kafka."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from tests import golden_cases
from tests.interop import broker, toolchain
from tests.interop.reference import RecordTuple, Reference, Refused, Rule
from tests.ports import free_ports

DEEP = ("--deep-iteration", "--print-data-log")
T0 = 1_700_000_000_000


def user_topic(case: golden_cases.Case) -> bool:
    return not case.name.startswith("__")


@golden_cases.each_partition("logdir", where=user_topic)
def test_dump_is_what_the_capture_holds(reference: Reference, case: golden_cases.Case) -> None:
    for name, suffix, options in [
        *((n, ".deep.txt", DEEP) for n in case.files_with(".log")),
        *((n, ".shallow.txt", ()) for n in case.files_with(".log")),
        *((n, ".txt", ()) for n in case.files_with("index")),
    ]:
        wanted = [e for e in case.expected if e.endswith(f"{case.name}/{Path(name).name}{suffix}")]
        if not wanted:
            continue
        printed, _ = reference.dump(case.path(name), *options)
        printed = printed.replace(str(case.directory.parent).encode() + b"/", b"")
        assert printed == case.expected_path(wanted[0]).read_bytes(), name


def test_rule_means_the_same_on_both_sides(reference: Reference, tmp_path: Path) -> None:
    rule = Rule(100, 7, T0, step_ms=3, back_ms=50, back_every=10)
    with reference.open(tmp_path / "t-0", clean=True) as log:
        assert log.fill(rule) == 100
        expected: list[RecordTuple] = [(i, rule.timestamp(i), None, rule.value(i), ()) for i in range(100)]
        assert log.read() == expected


def test_records_go_in_and_out_unchanged(reference: Reference, tmp_path: Path) -> None:
    headers = (("h", b"\xff\x00"), ("h", None), ("", b""))
    with reference.open(tmp_path / "t-0", clean=True) as log:
        info = log.append([(T0, b"\x00k", None, headers), (T0 + 1, None, b"")], [(T0, b"", b"v")])
        assert [(i["first_offset"], i["last_offset"]) for i in info] == [(0, 1), (2, 2)]
        assert log.read() == [
            (0, T0, b"\x00k", None, headers),
            (1, T0 + 1, None, b"", ()),
            (2, T0, b"", b"v", ()),
        ]


def test_what_kafka_throws_is_raised(reference: Reference, tmp_path: Path) -> None:
    with reference.open(tmp_path / "t-0", clean=True) as log:
        assert log.offsets([1]) == [{"error": "OffsetOutOfRangeException"}]
        with pytest.raises(Refused) as caught:
            log.ask("truncate_to", offset=-1)
    assert caught.value.kind == "IllegalArgumentException"


def test_a_crash_loses_indexes_only(reference: Reference, tmp_path: Path) -> None:
    """From the .log alone, opened unclean, comes a log with the same offsets and segments."""
    with reference.open(tmp_path / "a" / "t-0", {"internal.segment.bytes": 20_000}, clean=True) as log:
        log.fill(Rule(2000, 9, T0))
        log.ask("roll")
        state = log.deep_state()
    (tmp_path / "b" / "t-0").mkdir(parents=True)
    for file in (tmp_path / "a" / "t-0").glob("*.log"):
        shutil.copy(file, tmp_path / "b" / "t-0")
    with reference.open(tmp_path / "b" / "t-0", {"internal.segment.bytes": 20_000}, clean=False) as log:
        recovered = log.deep_state()
    assert recovered["log_end_offset"] == 2000
    assert [s["base_offset"] for s in recovered["segments"]] == [s["base_offset"] for s in state["segments"]]


@pytest.mark.parametrize(("clean", "end"), [(True, 20), (False, 18)])
def test_an_unclean_open_looks_at_the_data_and_a_clean_one_does_not(
    reference: Reference, tmp_path: Path, clean: bool, end: int
) -> None:
    with reference.open(tmp_path / "t-0", clean=True) as log:
        log.fill(Rule(20, 2, T0))
    file = next((tmp_path / "t-0").glob("*.log"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with reference.open(tmp_path / "t-0", clean=clean) as log:
        assert log.end_offset == end


def test_a_broker_whose_port_was_taken_takes_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that was free is another program's a moment later, as where two processes run tests."""
    made = broker.Broker(None, tmp_path, tmp_path / "data")
    with socket.create_server(("localhost", 0)) as taken:
        given = [[taken.getsockname()[1], *free_ports(1)], free_ports(2)]
        monkeypatch.setattr(broker, "free_ports", lambda count: given.pop(0))
        with made as running:
            assert not given and running.bootstrap != f"localhost:{taken.getsockname()[1]}"


def test_a_jvm_without_an_archive_of_classes_starts_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its training is run once, whatever comes of it."""
    monkeypatch.setenv("KAFKALOG_INTEROP_CACHE", str(tmp_path))
    given: list[tuple[str, ...]] = []

    def train(options: tuple[str, ...]) -> None:
        given.append(options)
        raise RuntimeError("the broker did not start")

    assert [toolchain.class_archive("broker", "a.jar", train) for _ in range(2)] == [(), ()]
    assert len(given) == 1 and given[0][0].startswith(f"-XX:ArchiveClassesAtExit={tmp_path}")


def test_jars_that_are_installed_again_have_an_archive_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a new clone at the path of an old one: a JVM would refuse the old archive, and start slowly each time."""
    monkeypatch.setenv("KAFKALOG_INTEROP_CACHE", str(tmp_path))
    (jar := tmp_path / "a.jar").write_bytes(b"")

    def options() -> tuple[str, ...]:
        return toolchain.class_archive(
            "spark", "home", lambda given: Path(given[0].partition("=")[2]).write_bytes(b"classes"), [jar]
        )

    assert (first := options()) == options()
    os.utime(jar, (1, 1))
    again = options()
    assert again[0] != first[0]
    assert [Path(one[0].partition("=")[2]).exists() for one in (first, again)] == [False, True]
