"""A file system that fails on demand: what ENOSPC, EIO, EINTR-like short writes do to the code above.

`FaultFS()` passes every call on and records it. `fail()` adds a rule; `short_writes()` limits each write.
The calls still reach the real file system, so a test looks at real files afterwards.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kafkalog.util.fileio import FileSystem

FD_CALLS = (
    "close", "pread", "preadv", "pwrite", "pwritev", "ftruncate", "posix_fallocate",
    "fsync", "fdatasync", "fstat", "advise", "clone",
)  # fmt: skip
PATH_CALLS = (
    "open", "open_read", "stat", "rename", "unlink", "mkdir", "rmdir", "listdir", "scandir", "utime", "link", "chmod",
)  # fmt: skip
WRITING_CALLS = frozenset(
    ("open", "pwrite", "pwritev", "ftruncate", "posix_fallocate", "fsync", "fdatasync",
     "rename", "unlink", "mkdir", "rmdir", "utime", "link", "chmod")
)  # fmt: skip


@dataclass
class Call:
    """One recorded call: its name, the path (of the descriptor too) and the other arguments."""

    op: str
    path: str
    args: tuple[Any, ...]


@dataclass
class Rule:
    """Raise `errno` at the calls that match, beginning with the `nth`-th (from 1), at most `times` times."""

    ops: frozenset[str]
    path: str
    nth: int
    times: int
    code: int
    partial: int
    error: BaseException | type[BaseException] | None
    seen: int = 0
    fired: int = 0

    def hit(self, op: str, path: str) -> bool:
        """True when this call is one to fail; counts it."""
        if op not in self.ops or self.path not in path or self.fired >= self.times:
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        self.fired += 1
        return True

    def raise_it(self, path: str) -> None:
        """Raise what the rule says."""
        if self.error is not None:
            raise self.error
        raise OSError(self.code, os.strerror(self.code), path)


@dataclass(eq=False)
class FaultFS(FileSystem):
    """See the module's first lines. `calls` is what was called, in order."""

    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rules: list[Rule] = []
        self._paths: dict[int, str] = {}
        self._short = 0
        for name in FD_CALLS:
            setattr(self, name, self._by_fd(name))
        for name in PATH_CALLS:
            if name != "open_read":  # a rule's name for an open that cannot write; "open" is one that can
                setattr(self, name, self._by_path(name))

    def real(self, op: str) -> Callable[..., Any]:
        """Make the call where no rule says otherwise; a subclass may watch it."""
        return getattr(FileSystem, op)

    def fail(
        self, *ops: str, path: str = "", nth: int = 1, times: int = 1 << 30,
        code: int = errno.ENOSPC, partial: int = 0, error: BaseException | type[BaseException] | None = None,
    ) -> Rule:  # fmt: skip
        """A new rule for `ops` (default: every call that can change a file) on paths containing `path`.

        `partial` bytes of a failing write are written first; `error` is raised instead of an OSError.
        """
        kinds = frozenset(ops) or WRITING_CALLS
        assert kinds <= {*FD_CALLS, *PATH_CALLS}, kinds
        self._rules.append(Rule(kinds, path, nth, times, code, partial, error))
        return self._rules[-1]

    def short_writes(self, most: int) -> None:
        """From now on one write call takes at most `most` bytes (0: no limit)."""
        self._short = most

    def heal(self) -> None:
        """Drop all rules and limits."""
        self._rules.clear()
        self._short = 0

    def named(self, *ops: str) -> list[Call]:
        """The recorded calls of these names."""
        return [call for call in self.calls if call.op in ops]

    def _check(self, op: str, path: str, write: Callable[[int], Any] | None = None) -> None:
        for rule in self._rules:
            if rule.hit(op, path):
                if write is not None and rule.partial:
                    write(rule.partial)
                rule.raise_it(path)

    def _by_fd(self, op: str) -> Callable[..., Any]:
        real = self.real(op)

        def call(fd: int, *args: Any) -> Any:
            path = self._paths.get(fd, "")
            self.calls.append(Call(op, path, args))
            if op == "pwrite":
                data = memoryview(args[0]).cast("B")
                self._check(op, path, lambda most: real(fd, data[:most], args[1]))
                if self._short:
                    return real(fd, data[: self._short], args[1])
            elif op == "close":
                real(fd)  # even a failing close gives the descriptor back (close(2))
                self._paths.pop(fd, None)
                self._check(op, path)
                return None
            else:
                self._check(op, path)
            return real(fd, *args)

        return call

    def _by_path(self, op: str) -> Callable[..., Any]:
        real = self.real(op)

        def call(path: Any, *args: Any, **named: Any) -> Any:
            text = os.fspath(path)
            kind = op
            if op == "open" and not args[0] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                kind = "open_read"
            self.calls.append(Call(kind, text, args))
            self._check(kind, text)
            result = real(path, *args, **named)
            if op == "open":
                self._paths[result] = text
            return result

        return call


def each_failure(limit: int = 200) -> Iterator[int]:
    """1, 2, 3 ...: which call is to fail. The test stops when its rule did not fire.

    AssertionError after `limit` calls, so that a test that never gets there ends.
    """
    yield from range(1, limit)
    raise AssertionError(f"still failing after {limit} calls")
