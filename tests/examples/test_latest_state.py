"""examples/latest_state.py: the last value of each key, beside a writer and after it."""

import signal
import subprocess
from pathlib import Path

import kafkalog
from tests.commands import environment
from tests.examples.programs import line, refused, said
from tests.examples.test_orders_of_customer import data

__all__ = ["data"]


def test_latest_state(data: Path, tmp_path: Path) -> None:
    both = ["carol 3 nuts", "alice 4 plums", "alice 4 plums"]
    assert said("latest_state.py", data, "orders") == both
    assert said("latest_state.py", data, "orders", "--index", tmp_path / "indexes") == both
    assert len(list((tmp_path / "indexes").rglob("*.keyindex"))) == 2
    assert said("latest_state.py", data, "orders", "carol", "bob") == ["carol 3 nuts"]
    assert "no topic" in refused("latest_state.py", data, "other")


def test_latest_state_that_follows(data: Path) -> None:
    command = line("latest_state.py", data, "orders", "--follow")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as program:
        assert program.stdout is not None
        assert [program.stdout.readline() for _ in range(3)][-1] == "alice 4 plums\n"
        with kafkalog.open(data / "orders-1", "a") as log:
            log.append([(b"dave", b"5 limes")])
            assert program.stdout.readline() == "dave 5 limes\n"
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=60) == 130
