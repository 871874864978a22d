"""Locks and threads that the package creates, compared with docs/threads.md.

As a pytest plugin (`-p tests.locks_and_threads`) it notes which lock is waited for while which other is held, and
writes that into the file named by LOCK_ORDER.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.trees import PACKAGE, ROOT

DOCUMENT = ROOT / "docs" / "threads.md"
LOCKS = frozenset(
    {"Lock", "LogLock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "guard", "flock", "lockf"}
)
GATES = frozenset({"Event", "shut_gate", "Queue", "LifoQueue", "PriorityQueue", "SimpleQueue"})
THREADS = frozenset({"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "run_in_executor", "to_thread"})
ROW = re.compile(r"^\| (?:(\d+) \| )?`([\w/]+\.py)` `(\w+)` \|", re.MULTILINE)
Place = tuple[str, str]


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _is_ours(call: ast.Call, requested: frozenset[str]) -> bool:
    """Return True if a call creates one: `Event(...)` with arguments is a log event, not threading.Event."""
    name = _called(call)
    return name in requested and not (name == "Event" and isinstance(call.func, ast.Name))


def find_created(requested: frozenset[str]) -> dict[tuple[str, int], str]:
    """Return (file, line) of each call, and the name of its result, or the enclosing function if there is none."""
    found: dict[tuple[str, int], str] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        text = path.read_text(encoding="utf-8")
        if any(name in text for name in requested):  # most files have none, and need not be parsed
            _walk(ast.parse(text), "", file, requested, found)
    return found


def _walk(node: ast.AST, name: str, file: str, requested: frozenset[str], found: dict[tuple[str, int], str]) -> None:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        name = node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        target = node.targets[-1] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Attribute):
            name = target.attr
        elif isinstance(target, ast.Name) and target.id not in ("thread", "others"):
            name = target.id
    if isinstance(node, ast.Call) and _is_ours(node, requested):
        found[file, node.lineno] = name
    for child in ast.iter_child_nodes(node):
        _walk(child, name, file, requested, found)


def rows(heading: str) -> dict[Place, int]:
    """Return the names in a table of docs/threads.md: (file, name) -> the number in the row, 0 for none."""
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return {(file, name): int(number or 0) for number, file, name in ROW.findall(section)}


# Which lock is waited for under which

_names: dict[tuple[str, int], str] = {}
_held = threading.local()
_edges: set[tuple[Place, Place]] = set()
_real = threading.Lock, threading.RLock


class _Watched:
    """A lock of the package's that notes what its threads hold when they wait for it."""

    def __init__(self, lock: Any, place: Place, is_gate: bool) -> None:
        self._lock = lock
        self._place = place
        self._is_gate = is_gate
        self._is_new = is_gate

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        stack = _held.__dict__.setdefault("stack", [])
        if blocking and not self._is_new:
            _edges.update((one._place, self._place) for one in stack if one is not self)
            if any(one is not self and one._place == self._place for one in stack):
                _edges.add((self._place, self._place))
        self._is_new = False
        taken: bool = self._lock.acquire(blocking, timeout)
        if taken and not self._is_gate:
            stack.append(self)
        return taken

    def release(self) -> None:
        stack = _held.__dict__.setdefault("stack", [])
        if self in stack:
            stack.remove(self)
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def _watching(make: Callable[[], Any]) -> Callable[[], Any]:
    def made_here() -> Any:
        frame = sys._getframe(1)
        if (frame.f_code.co_filename == threading.__file__ or frame.f_code.co_name == "guard") and frame.f_back:
            frame = frame.f_back  # a condition's own lock; one that a module creates
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(PACKAGE):
            return make()
        file = path.relative_to(PACKAGE).as_posix()
        is_gate = frame.f_code.co_name == "shut_gate" or file == "tools/produce/queue.py"
        return _Watched(make(), (file, "gate" if is_gate else _names[file, frame.f_lineno]), is_gate)

    return made_here


def pytest_configure() -> None:
    """From now on the package's locks are watched; it is not imported yet."""
    _names.update(find_created(LOCKS | GATES))
    threading.Lock = _watching(_real[0])  # type: ignore[misc, assignment]
    threading.RLock = _watching(_real[1])  # type: ignore[misc, assignment]


def pytest_unconfigure() -> None:
    """Report the observations."""
    threading.Lock, threading.RLock = _real  # type: ignore[misc]
    lines = (f"{held[0]} {held[1]} {requested[0]} {requested[1]}\n" for held, requested in sorted(_edges))
    Path(os.environ["LOCK_ORDER"]).write_text("".join(lines), encoding="utf-8")
