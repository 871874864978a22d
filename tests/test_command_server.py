"""Commands of tests run in forks of one process, as they do in processes of their own."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import kafkalog
from kafkalog.testing import kafka_server
from tests import commands
from tests.command_server import IS_POSSIBLE, Forked

pytestmark = pytest.mark.skipif(not IS_POSSIBLE, reason="no pidfd_open, which Linux has")
Outcome = tuple[int, bytes, bytes]


def run_both(*arguments: str, stdin: bytes = b"", cwd: Path | None = None, **env: str) -> list[Outcome]:
    """Return what a command says and its status: as tests run it, and in a process of its own."""
    forked = commands.kafkalog(*arguments, stdin=stdin, cwd=cwd, **env)
    alone = subprocess.run(
        [*commands.LINE, *arguments], input=stdin, cwd=cwd, capture_output=True, env=commands.environment(**env)
    )
    return [(done.returncode, done.stdout, done.stderr) for done in (forked, alone)]


def test_directory_variables_pipes_and_status_are_those_of_the_caller(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 2)
    produce = ["produce", "-t", "orders", "--partition", "1"]
    for _ in range(2):  # the second fork has what the first imported
        forked, alone = run_both(*produce, "-d", "data", stdin=b"a\nb\n", cwd=tmp_path)
        assert forked[0] == alone[0] == 0, forked
        forked, alone = run_both("consume", "-t", "orders", KAFKALOG_DIR=str(tmp_path / "data"))
        assert forked == alone and forked[0] == 0 and forked[1].startswith(b"a\nb\n"), forked
    for wrong in (["consum"], ["consume", "-d", "nowhere", "-t", "orders"], ["ls", "--no-such"]):
        forked, alone = run_both(*wrong, cwd=tmp_path)
        assert forked == alone and forked[0] != 0 and forked[2], forked


def test_variables_that_the_interpreter_reads_need_another_process() -> None:
    for name, value in (("PYTHONIOENCODING", "ascii"), ("LC_ALL", "C"), ("KAFKALOG_CPU", "none")):
        environ = commands.environment(**{name: value})
        assert commands.server().run([commands.MODULE, "--version"], b"", os.sep, environ, 60) is None
    assert commands.server().run([commands.MODULE, "x" * 70_000], b"", os.sep, commands.environment(), 60) is None


def test_threads_run_commands_at_once() -> None:
    with ThreadPoolExecutor(4) as pool:
        helps = list(pool.map(lambda name: commands.ok(name, "--help"), ["ls", "dump", "ls", "dump"]))
    assert helps[:2] == helps[2:] and b"kafkalog ls" in helps[0] and b"kafkalog dump" in helps[1]


def test_a_command_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("orders", 1)
    follow = [commands.MODULE, "consume", "-d", str(tmp_path), "-t", "orders", "--follow"]
    with pytest.raises(subprocess.TimeoutExpired):
        commands.server().run(follow, b"", os.sep, commands.environment(), 1)


@pytest.mark.parametrize("way", ["forked", "unforked"])
def test_a_server_is_killed_stopped_and_started_again(way: str, request: pytest.FixtureRequest) -> None:
    if way == "unforked":
        request.getfixturevalue(way)
    with kafka_server(topics="orders") as server:
        process, first = server._process, server.pid
        assert process is not None and isinstance(process, Forked) is (way == "forked")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0)
        server.kill()
        assert process.poll() == process.wait(0) == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
        server.start()
        process = server._process
        server.stop()
        assert process is not None and process.poll() == 0
        server.start()
        assert "ERROR" not in server.log()
        server._process.terminate()
        assert server._process.wait(60) == 0


@pytest.mark.parametrize(("ending", "status"), [("", 0), ("sys.exit(3)", 3), ("sys.exit('no')", 1), ("1 / 0", 1)])
def test_a_script_runs_as_python_runs_it(tmp_path: Path, ending: str, status: int) -> None:
    (tmp_path / "helper.py").write_text("NAME = 'helper'\n")
    script = tmp_path / "script.py"
    script.write_text(f"import os, sys, helper\nprint(__name__, helper.NAME, sys.argv, os.getcwd())\n{ending}\n")
    forked = commands.run([str(script), "a"], cwd=tmp_path, timeout_s=60)
    alone = subprocess.run(
        [sys.executable, str(script), "a"], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True,
        env=commands.environment(),
    )  # fmt: skip
    assert (forked.returncode, forked.stdout) == (alone.returncode, alone.stdout) and b"helper" in forked.stdout
    assert forked.returncode == status and forked.stderr[-20:] == alone.stderr[-20:]


def test_an_end_is_seen_while_a_later_program_has_not_begun() -> None:
    """One that is stopped at its start still has all that the server had open when it forked."""
    sleeps = ["-c", "import time; time.sleep(60)"]
    with open(os.devnull, "r+b") as null, ThreadPoolExecutor() as pool:
        for _ in range(5):
            first, later = (
                commands.server().start(sleeps, [null.fileno()] * 3, os.sep, commands.environment()) for _ in range(2)
            )
            assert first is not None and later is not None
            later.send_signal(signal.SIGSTOP)
            first.kill()
            waiting = pool.submit(first.wait)
            try:
                assert waiting.result(30) == -signal.SIGKILL
            finally:
                os.kill(later.pid, signal.SIGKILL)
            assert later.wait(30) == -signal.SIGKILL
