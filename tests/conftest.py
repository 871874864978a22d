"""What every test may use: the golden capture's cleaning up, and property tests without deadlines."""

import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tests import golden_cases

hypothesis.settings.register_profile(
    "kafkalog", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("kafkalog")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for whatever a shell starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(autouse=True)
def _own_cursors(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the positions that the user who runs it keeps."""
    monkeypatch.delenv("KAFKALOG_CURSORS", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))
