"""A store of data directories whose clock, jobs and file system a test holds."""

from pathlib import Path

from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.dirs.writable import LogStore
from tests.faults import FaultFS
from tests.mock_time import MockClock, MockScheduler

NOW = 1_700_000_000_000
DAY = 86_400_000
ANY_TIME = {"message.timestamp.before.max.ms": 2**63 - 1}


class Held:
    """A store whose clock, jobs and file system a test holds."""

    def __init__(self, *paths: Path, now_ms: int = NOW, fs: FaultFS | None = None, **settings: object) -> None:
        self.paths = [str(path) for path in paths]
        self.clock = MockClock(now_ms)
        self.scheduler = MockScheduler(self.clock)
        self.fs = FaultFS() if fs is None else fs
        self.store = LogStore.open(self.paths, settings, fs=self.fs, clock=self.clock, scheduler=self.scheduler)
        self.dirs = LogDirs(self.paths, self.store)

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *exc: object) -> None:
        self.dirs.close()

    def pass_time(self, ms: int, step_ms: int = DAY) -> None:
        """Let time pass in steps, so that jobs run as often as they do."""
        while ms > 0:
            self.scheduler.advance(min(ms, step_ms))
            ms -= step_ms
