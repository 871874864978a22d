"""Fixtures and hooks for every test: cleanup of the golden capture, property tests without deadlines, work shares."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import golden_cases, memory, quick, trees
from tests.emulation import emulated

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

hypothesis.settings.register_profile(
    "kafkalog", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.register_profile(
    "emulated", parent=hypothesis.settings.get_profile("kafkalog"), max_examples=15, stateful_step_count=15
)
hypothesis.settings.register_profile("quick", parent=hypothesis.settings.get_profile("kafkalog"), max_examples=25)
hypothesis.settings.load_profile("emulated" if emulated() else "kafkalog")
LONG_FILES = quick.long_files()
OF_CTRL_C = {
    "test_interrupts.py", "test_writer_interrupts.py", "test_open_dirs_interrupts.py", "test_group_commit_signals.py",
}  # fmt: skip
"""The files whose tests stop calls at any moment."""
STOPPERS = {"interrupted_at", "CtrlC"}
"""Names that a test has in it which does so in another file."""
QUIET = {"capfd", "capfdbinary"}
"""Fixtures of tests that look at what the process writes."""
IN_MEMORY = tuple(
    f"{Path(__file__).parent / name}{os.sep}"
    for name in ("backup", "golden", "keys", "lake", "manager", "redact", "storage", "tools")
)
"""Folders whose tests sync many small files, those with the mark `on_disk` left out."""
ROOM_BYTES = 256 << 20
"""What has to be free in memory for all of these."""
LAST_FILE = pytest.StashKey[Path]()
LAST_QUIET = pytest.StashKey[Path]()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for whatever a shell starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "Scheduling | None":
    """With `--dist loadfile` files that share something costly stay together, and the long ones come first."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.workers import Shares

    return Shares(config, log)


def pytest_report_header() -> list[str]:
    """Return the tested package, and the directory for files that would otherwise be in memory."""
    tested = f"kafkalog from {trees.PACKAGE.parent}{f', as in {trees.WHEEL.name}' if trees.WHEEL else ''}"
    if memory.memory(ROOM_BYTES) is not None:
        return [tested]
    names = ", ".join(sorted(Path(folder).name for folder in IN_MEMORY))
    return [tested, f"files on the disk: {memory.MEMORY} has less than {ROOM_BYTES >> 20} MiB for those of {names}"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out the files of tests/long_files.txt, and try fewer "
                     "examples of properties that do not say how many")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Let properties of `--quick` run fewer examples: those of the whole suite follow before a change is merged."""
    if config.getoption("quick") and not emulated():
        hypothesis.settings.load_profile("quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --quick, leave out files whose tests take long."""
    if not config.getoption("quick"):
        return None
    return True if collection_path.relative_to(trees.ROOT).as_posix() in LONG_FILES else None


def pytest_sessionstart() -> None:
    """Nothing runs against another package than the one that is to be tested."""
    if wrong := trees.wrong_package():
        raise pytest.UsageError(wrong)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """While tests are collected nothing becomes garbage, and the collector would go through all of them in vain."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before each file, collect what is left in cycles and freeze the rest: tests that collect do not go through it.

    Clients of librdkafka that earlier tests left in cycles go before a test that looks at the process's stderr.
    """
    if item.session.stash.get(LAST_FILE, None) != item.path:
        item.session.stash[LAST_FILE] = item.path
        gc.collect()
        gc.freeze()
    is_first = item.session.stash.get(LAST_QUIET, None) != item.path
    if is_first and "confluent_kafka" in sys.modules and QUIET & set(getattr(item, "fixturenames", ())):
        item.session.stash[LAST_QUIET] = item.path
        gc.collect()


def pytest_collection_finish() -> None:
    """Freeze the collected items: the collector need not scan them whenever a test calls it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """With the mark `in_memory`, a directory in memory where that can be: on a disk such tests only wait."""
    place = None if request.node.get_closest_marker("in_memory") is None else memory.memory()
    if place is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="kafkalog-", dir=place, ignore_cleanup_errors=True) as made:
        (path := Path(made, tmp_path.name)).mkdir()  # what a test makes beside it goes with it
        yield path


@pytest.fixture(scope="session")
def new_path() -> Iterator[Callable[[str], Path]]:
    """Makes a directory for each example of a property test, in memory where that can be."""
    with tempfile.TemporaryDirectory(prefix="kafkalog-", dir=memory.memory(), ignore_cleanup_errors=True) as made:
        yield lambda name: Path(tempfile.mkdtemp(prefix=f"{name}-", dir=made))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of `IN_MEMORY` get its mark.

    Tests of Ctrl-C would wait for ever for a lock that the interpreter, not the package, has left locked.
    """
    for item in items if memory.memory(ROOM_BYTES) is not None else ():
        if str(item.path).startswith(IN_MEMORY) and item.get_closest_marker("on_disk") is None:
            item.add_marker(pytest.mark.in_memory)
    stopping = [item for item in items if stops_calls(item)]
    if not stopping:
        return
    from tests.interruptions import with_is_whole  # imports the package, which others want to see imported

    if not with_is_whole():
        reason = "a Ctrl-C may leave a lock of this Python locked: CPython's gh-148874 (3.14, mended in 3.15)"
        for item in stopping:
            item.add_marker(pytest.mark.skip(reason=reason))


def stops_calls(item: pytest.Item) -> bool:
    """Return True if a test interrupts calls at any moment."""
    code = getattr(getattr(item, "function", None), "__code__", None)
    return item.path.name in OF_CTRL_C or code is not None and not STOPPERS.isdisjoint(code.co_names)


@pytest.fixture(scope="session", autouse=True)
def _golden_scratch() -> Iterator[None]:
    """Extracted archives live for one session."""
    yield
    golden_cases.close_scratch()


@pytest.fixture(autouse=True)
def _ctrl_c_is_as_it_was() -> Iterator[None]:
    """No test leaves Ctrl-C held back for those that come after it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    after = signal.getsignal(signal.SIGINT)
    if after is not before:
        signal.signal(signal.SIGINT, before)
        pytest.fail(f"this test leaves {after} in the place of {before}")


@pytest.fixture(scope="session", autouse=True)
def _servers_are_forked() -> Iterator[None]:
    """The processes of `kafkalog.testing` are forks, as commands are: each would import for a quarter of a second."""
    from tests import commands

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands.hosting, "start_inside", commands.start_inside)
        yield


@pytest.fixture
def unforked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of `kafkalog.testing` start as they do for its users, as children of the one that runs tests."""
    from tests import commands

    monkeypatch.setattr(commands.hosting, "start_inside", commands.ALONE)


@pytest.fixture(scope="session", autouse=True)
def _own_cursors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the positions that the user who runs it keeps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("KAFKALOG_CURSORS", raising=False)
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
        yield
