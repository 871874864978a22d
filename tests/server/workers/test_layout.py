"""How directories, ports and partitions are divided among workers."""

from __future__ import annotations

import pytest

from kafkalog.errors import ConfigError
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.status.collected import ProcessTotals
from kafkalog.server.workers.layout import check_workers, directories_of, settings_of, spread
from kafkalog.server.workers.link import Message
from kafkalog.util.prometheus import added


def test_directories_go_round() -> None:
    assert [directories_of("abcde", worker, 2) for worker in range(2)] == [["a", "c", "e"], ["b", "d"]]


def test_partitions_go_where_there_are_the_fewest_and_internal_topics_stay_in_the_main_process() -> None:
    assert spread("t", range(4), {0: 3, 1: 0, 2: 1}) == {1: [0, 1, 3], 2: [2]}
    assert spread("t", range(5), {0: 0, 1: 0}) == {0: [0, 2, 4], 1: [1, 3]}
    assert spread("t", range(3), {0: 5, 1: 1}) == {1: [0, 1, 2]}
    assert spread("__consumer_offsets", range(3), {0: 5, 1: 0}) == {0: [0, 1, 2]}
    assert spread("_schemas", range(1), {0: 5, 1: 0}) == {0: [0]}


def test_a_worker_has_the_next_ports_and_no_settings_of_the_whole_server() -> None:
    config = ServerConfig({
        "listeners": "A://127.0.0.1:9092,B://[::1]:0", "advertised.listeners": "A://host:19092",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT", "kafkalog.workers": 3, "node.id": 7,
        "kafkalog.http.listener": "127.0.0.1:0", "log.retention.ms": 5, "log.dirs": "a,b,c",
    })  # fmt: skip
    settings = settings_of(config, 2)
    assert settings["listeners"] == "A://127.0.0.1:9094,B://[::1]:0"
    assert settings["advertised.listeners"] == "A://host:19094"
    assert settings_of(config, 2, {"A": 9094, "B": 4321})["listeners"] == "A://127.0.0.1:9094,B://[::1]:4321"
    assert settings["log.retention.ms"] == "5"
    assert not settings.keys() & {"kafkalog.workers", "node.id", "kafkalog.http.listener", "log.dirs"}
    with pytest.raises(ConfigError, match="no port"):
        settings_of(config.with_({"listeners": "A://127.0.0.1:65535"}), 1)


@pytest.mark.parametrize(
    ("settings", "directories", "message"),
    [
        ({}, ("a",), "2 workers need at least 2 data directories"),
        ({"kafkalog.replicas": "1@a:1,2@b:2,3@c:3"}, ("a", "b"), "kafkalog.replicas is not possible"),
        ({"cordoned.log.dirs": "a"}, ("a", "b"), "cordoned.log.dirs is not possible"),
    ],
)
def test_what_several_workers_cannot_do(
    settings: dict[str, str], directories: tuple[str, ...], message: str
) -> None:
    config = ServerConfig({"kafkalog.workers": 2, **settings})
    with pytest.raises(ConfigError, match=message):
        check_workers(config, directories)
    assert check_workers(config.with_({"kafkalog.workers": 1}), directories) == 1


def test_metrics_of_several_processes_are_added() -> None:
    def counter(value: int) -> str:
        return f"# HELP a of a\n# TYPE a counter\na {value}\n"

    def histogram(count: int, total: float) -> str:
        return f'# HELP b of b\n# TYPE b histogram\nb_bucket{{le="+Inf"}} {count}\nb_sum {total}\n'

    one, two = counter(1) + histogram(2, 0.5), histogram(3, 0.25) + counter(2)
    other = '# HELP c of c\n# TYPE c gauge\nc{log="x y"} 4\n'
    assert added([one]) == one
    assert added([one, two, other]) == counter(3) + histogram(5, 0.75) + other


def test_what_an_ended_worker_had_counted_stays() -> None:
    def of(counted: int, opened: int, *, logged: int = 0) -> str:
        return (
            f'# HELP a of a\n# TYPE a counter\na{{api="x"}} {counted}\n# HELP o of o\n# TYPE o gauge\no {opened}\n'
            f'# HELP l of l\n# TYPE l counter\nl{{topic="t",directory="d"}} {logged}\n'
        )

    def worker(process: int, counted: int) -> Message:
        return Message({"number": 1, "process": process}, of(counted, 1, logged=counted).encode())

    totals = ProcessTotals()
    assert totals.text(of(1, 1), []) == of(1, 1)
    assert totals.text(of(1, 1), [worker(7, 5)]) == of(6, 2, logged=5)
    for _ in range(2):
        assert totals.text(of(2, 1), []) == of(7, 1)  # it ended, or does not answer for a moment
    assert totals.text(of(2, 1), [worker(7, 6)]) == of(8, 2, logged=6)
    for _ in range(2):
        assert totals.text(of(2, 1), [worker(8, 1)]) == of(9, 2, logged=1)  # the next process
    assert totals.text(of(2, 1), [worker(9, 3)]) == of(12, 2, logged=3)


def test_times_and_marks_of_several_processes_are_not_added() -> None:
    def of(failed: int, at: float) -> str:
        rows = {"kafkalog_job_failed": failed, "kafkalog_job_last_run_timestamp_seconds": at, "open": 1}
        return "".join(f"# HELP {name} a\n# TYPE {name} gauge\n{name} {value!r}\n" for name, value in rows.items())

    expected = of(1, 1_796_000_000.5).replace("open 1\n", "open 2\n")
    assert added([of(1, 1_795_000_000.5), of(1, 1_796_000_000.5)]) == expected


@pytest.mark.parametrize("end", ["\r", "\v", "\x1c", "\x85", "\u2028"])
def test_a_label_with_an_end_of_line_of_another_kind_is_one_value(end: str) -> None:
    text = f'# HELP c of c\n# TYPE c gauge\nc{{directory="/a{end}b"}} 4\n'
    assert added([text, text]) == text.replace(" 4", " 8")
