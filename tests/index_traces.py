"""Plays the traces that the reference's index classes left (golden vectors `offset_index` and `time_index`)."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafkalog.errors import CorruptIndex, IllegalArgument, IllegalState, IndexOffsetOverflow, InvalidOffset
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.index.time_index import TimeIndex
from tests import golden_cases

Index = OffsetIndex | TimeIndex
Step = dict[str, Any]

ERRORS: dict[str, type[Exception]] = {
    "IllegalArgumentException": IllegalArgument,
    "InvalidOffsetException": InvalidOffset,
    "IndexOffsetOverflowException": IndexOffsetOverflow,
    "CorruptIndexException": CorruptIndex,
    "IllegalStateException": IllegalState,
    "BufferOverflowException": IllegalState,
}


def file_bytes(text: str) -> bytes:
    """The bytes of a vector's `file`: hex, then perhaps `+N*00` for N zero bytes."""
    head, _, tail = text.partition("+")
    return bytes.fromhex(head) + bytes(int(tail.split("*")[0]) if tail else 0)


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of `call`, or the exception it raised."""
    try:
        return call()
    except Exception as error:
        return error


def check(expected: Any, call: Callable[[], Any]) -> None:
    """`call` does what the reference did: the same value ("ok" for none), or its kind of error naming its numbers."""
    got = outcome(call)
    if not isinstance(expected, dict) or "exception" not in expected:
        if isinstance(got, Exception):
            raise got
        assert as_json(got) == (None if expected == "ok" else expected)
        return
    kind = ERRORS[expected["exception"].rsplit(".", 1)[-1]]
    assert type(got) is kind, f"{got!r} instead of {expected}"
    said = re.sub(r"\(?<DIR>\S*", "", expected["message"])
    assert set(re.findall(r"-?\d+", said)) <= set(re.findall(r"-?\d+", got.message)), (said, got.message)


def as_json(value: Any) -> Any:
    """A position or time entry as the vectors write it."""
    names = [name for name in ("timestamp", "offset", "position") if hasattr(value, name)]
    return {name: getattr(value, name) for name in names} if names else value


def state(index: Index) -> dict[str, Any]:
    """Return the state of an index as the vectors have it."""
    last = (
        {"lastOffset": index.last_offset}
        if isinstance(index, OffsetIndex)
        else {"lastEntry": as_json(index.last_entry)}
    )
    return {
        "entries": index.entries,
        "maxEntries": index.max_entries,
        "isFull": index.is_full,
        "length": index.length,
        "sizeInBytes": index.size_in_bytes,
        **last,
    }


class Trace:
    """One index and the steps done to it."""

    def __init__(self, kind: type[Index], path: Path, case: dict[str, Any]) -> None:
        self.path = path
        self._open = lambda: kind(path, case["baseOffset"], case["maxIndexSize"])
        self._case = case
        self.index: Index

    def run(self) -> None:
        """All steps of the case; one that could not be created ends there.

        Since 4.4 one that is opened again with free space, which then counts as entries, ends there too: what the
        reference finds in entries without order is no promise, and our log rebuilds such an index.
        """
        if "create" in self._case:
            check(self._case["create"], self._open)
            assert os.path.getsize(self.path) == 0, "IDX-11: the file stays, empty"
            return
        self.index = self._open()
        for number, step in enumerate(self._case["ops"]):
            try:
                self._step(step)
            except Exception as error:
                error.add_note(f"step {number}: {step}")
                raise
            if step["op"] == "close_reopen" and not step["file"].isalnum():
                break
        self.index.close_handler()

    def _close(self) -> None:
        """As the reference does: since 4.4 its `close` no longer trims, the log does before."""
        if golden_cases.version() < (4, 4):
            self.index.close()
        else:
            self.index.close_handler()

    def _step(self, step: Step) -> None:
        operation = step["op"]
        if operation == "close_reopen":
            check(step["close"], self._close)
        elif operation not in ("create", "file"):
            expected = step.get("result", "ok")
            check(expected, lambda: self._do(operation, step))
        if "file" in step:
            assert self.path.read_bytes() == file_bytes(step["file"])
        if "fileLength" in step:
            assert os.path.getsize(self.path) == step["fileLength"]
        if operation == "close_reopen":
            self.index = self._open()
            check(step["sanityCheck"], self.index.sanity_check)
            assert os.path.getsize(self.path) == step["fileLengthAfterReopen"]
        if "state" in step:
            assert state(self.index) == step["state"]

    def _do(self, operation: str, step: Step) -> Any:
        index = self.index
        if isinstance(index, OffsetIndex):
            if operation == "append":
                return index.append(step["offset"], step["position"])
            if operation == "lookup":
                return index.lookup(step["offset"])
            if operation == "fetchUpperBoundOffset":
                from kafkalog._core.log.values import OffsetPosition

                fetched = OffsetPosition(step["offset"], step["position"])
                return index.fetch_upper_bound_offset(fetched, step["size"])
        else:
            if operation == "maybeAppend":
                return index.maybe_append(step["timestamp"], step["offset"], step["skipFullCheck"])
            if operation == "lookup":
                return index.lookup(step["timestamp"])
        calls: dict[str, Callable[[], Any]] = {
            "truncateTo": lambda: index.truncate_to(step["offset"]),
            "truncate": index.truncate,
            "resize": lambda: index.resize(step["size"]),
            "trimToValidSize": index.trim_to_valid_size,
            "reset": index.reset,
            "entry": lambda: index.entry(step["n"]),
            "canAppendOffset": lambda: index.can_append_offset(step["offset"]),
            "relativeOffset": lambda: index.relative_offset(step["offset"]),
            "sanityCheck": index.sanity_check,
            "close": self._close,
        }
        return calls[operation]()


def check_sanity_entry(kind: type[Index], path: Path, entry: dict[str, Any]) -> None:
    """A file given by its bytes, opened as existing: state, sanity check and length after closing the mapping."""
    path.write_bytes(file_bytes(entry["file"]))
    index = kind(path, entry["baseOffset"], entry["maxIndexSize"])
    expected = dict(entry["result"])
    check(expected.pop("sanityCheck"), index.sanity_check)
    assert state(index) == expected
    index.close_handler()
    assert os.path.getsize(path) == entry["fileLengthAfter"]
