"""Drives our Java program: one JVM that answers many questions about Kafka's own storage classes.

Commands and answers are JSON, one object a line (see java/interop/Main.java). Bytes travel as base64.
"""

import base64
import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.interop import toolchain

TIMEOUT_S = 300
CLEAN_RECOVERY_POINT = 2**63 - 1  # a recovery point that is above every offset: nothing is unflushed

Bytes = bytes | None
# offset, timestamp, key, value, ((header key, header value), ...)
RecordTuple = tuple[int, int, Bytes, Bytes, tuple[tuple[str, Bytes], ...]]


class Refused(Exception):
    """An exception that the reference threw; `.kind` is the Java class's simple name."""

    def __init__(self, error: Mapping[str, str]) -> None:
        super().__init__(f"{error['class']}: {error['message']}")
        self.kind = error["class"].rpartition(".")[2]


class Reference:
    """A JVM with Kafka's classes; closing its input ends it and drops the locks it holds."""

    def __init__(self) -> None:
        self._stderr = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            toolchain.java_command("interop.Main", options=toolchain.quick_start()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._pending = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(TIMEOUT_S)
        finally:
            self._process.stdout.close()
            self._stderr.close()

    def kill(self) -> None:
        """Ends the process as a crash would."""
        self._process.kill()
        self._process.wait()

    def ask(self, do: str, **fields: Any) -> Any:
        """The answer to one command; what the reference throws is raised as Refused."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        self._process.stdin.flush()
        response = json.loads(self._line(do))
        if "error" in response:
            raise Refused(response["error"])
        return response["answer"]

    def _line(self, do: str) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        parts = [self._pending]
        while b"\n" not in parts[-1]:
            ready = select.select([descriptor], [], [], TIMEOUT_S)[0]
            data = os.read(descriptor, 1 << 20) if ready else b""
            if not data:
                self._stderr.seek(0)
                said = self._stderr.read()[-2000:].decode(errors="replace")
                raise RuntimeError(f"the JVM gave no answer to {do!r}: {said}")
            parts.append(data)
        line, _, self._pending = b"".join(parts).partition(b"\n")
        return line

    def dump(self, file: Path, *options: str) -> tuple[bytes, bytes]:
        """Standard output and standard error of the dump tool, run on one file."""
        with tempfile.TemporaryDirectory() as scratch:
            out, err = Path(scratch, "out"), Path(scratch, "err")
            self.dump_to(out, err, file, *options)
            return out.read_bytes(), err.read_bytes()

    def dump_to(self, out: Path, err: Path, file: Path, *options: str) -> None:
        """Dump into two files, for output that is too big for memory."""
        answer = self.ask("dump", args=[*options, "--files", str(file)], out=str(out), err=str(err))
        assert answer == {"status": 0, "exception": None}, f"the dump tool failed on {file}: {answer}"

    def dump_outcome(self, *args: str) -> tuple[bytes, bytes, str | None]:
        """Standard output and standard error of the dump tool with these arguments, and what it died of."""
        with tempfile.TemporaryDirectory() as scratch:
            out, err = Path(scratch, "out"), Path(scratch, "err")
            answer = self.ask("dump", args=list(args), out=str(out), err=str(err))
            return out.read_bytes(), err.read_bytes(), answer["exception"]

    def take_lock(self, file: Path) -> bool:
        """Takes a data directory's lock as a broker does; False when another process has it."""
        return bool(self.ask("lock", file=str(file)))

    def drop_lock(self, file: Path) -> bool:
        """Gives the lock back."""
        return bool(self.ask("unlock", file=str(file)))

    def open(
        self,
        directory: Path,
        config: Mapping[str, Any] | None = None,
        *,
        clean: bool,
        log_start: int = 0,
        now_ms: int | None = None,
    ) -> "ReferenceLog":
        """The partition directory under Kafka's UnifiedLog, made if missing.

        clean: as after a clean stop, nothing is looked at; otherwise as after a crash, with recovery point 0,
        so that every segment is checked and its indexes are rebuilt. `now_ms`: where its clock stands, which else
        is that of the system; producers unheard of for a day before it are forgotten.
        """
        settings = {key: str(value) for key, value in (config or {}).items()}
        points = {"log_start": log_start, "recovery_point": CLEAN_RECOVERY_POINT if clean else 0}
        answer = self.ask("open", dir=str(directory), config=settings, clean=clean, clock=now_ms, **points)
        return ReferenceLog(self, answer["log"], answer["state"])


class ReferenceLog:
    """One open partition; `.state` is as it was when opened."""

    def __init__(self, reference: Reference, handle: int, state: dict[str, Any]) -> None:
        self.reference = reference
        self.state = state
        self._handle: int | None = handle

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._handle is not None:
            self.close()

    def ask(self, do: str, **fields: Any) -> Any:
        """The answer to a command on this log."""
        return self.reference.ask(do, log=self._handle, **fields)

    def close(self, *, marker: bool = False) -> None:
        """Closes; with marker, the data directory is left as by a broker that stopped well."""
        self.ask("close", marker=marker)
        self._handle = None

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return int(self.ask("state")["log_end_offset"])

    def deep_state(self) -> dict[str, Any]:
        """Offsets, epochs and every segment with all entries of its indexes."""
        answer: dict[str, Any] = self.ask("deep_state")
        return answer

    def times(self, timestamps: Iterable[int]) -> list[tuple[int, int] | None]:
        """For each timestamp (-1 latest, -2 earliest, -3 largest): (timestamp, offset) or None."""
        return [None if hit is None else (hit[0], hit[1]) for hit in self.ask("times", at=list(timestamps))]

    def offsets(self, offsets: Iterable[int]) -> list[Any]:
        """For each offset: [segment base, position, size of the batch], or {"error": class}."""
        return list(self.ask("offsets", at=list(offsets)))

    def read(self, offset: int | None = None, limit: int = 2**31 - 1) -> list[RecordTuple]:
        """At most limit records from offset (default: the log start) on."""
        start = {} if offset is None else {"offset": offset}
        return [record_tuple(row) for row in self.ask("read", limit=limit, **start)]

    def digest(self) -> dict[str, Any]:
        """count, first, last, and sha256 over every value with a newline after it."""
        answer: dict[str, Any] = self.ask("digest")
        return answer

    def append(self, *batches: Sequence[tuple[Any, ...]], leader_epoch: int = 0) -> list[dict[str, Any]]:
        """Appends batches of (timestamp, key, value[, headers]); the append info of each."""
        rows = [[record_row(*record) for record in batch] for batch in batches]
        return list(self.ask("append", batches=rows, leader_epoch=leader_epoch))

    def compact(
        self, first_dirty: int, uncleanable: int, now_ms: int, *, map_bytes: int = 1 << 20, load_factor: float = 0.9
    ) -> dict[str, int]:
        """Return what Kafka's own Cleaner reports of a clean of this log with a clock fixed at `now_ms`."""
        limits = {"from": first_dirty, "to": uncleanable, "clock": now_ms}
        stats: dict[str, int] = self.ask("compact", map_bytes=map_bytes, load_factor=load_factor, **limits)
        return stats

    def choose(self, now_ms: int, high_watermark: int) -> dict[str, Any] | None:
        """Return how Kafka's LogCleanerManager would clean this log, by the checkpoint beside it; None: not at all."""
        chosen: dict[str, Any] | None = self.ask("choose", clock=now_ms, high_watermark=high_watermark)
        return chosen

    def fill(self, rule: "Rule", leader_epoch: int = 0) -> int:
        """Appends the records of a rule; the end offset."""
        return int(self.ask("fill", leader_epoch=leader_epoch, **rule.fields))


class Rule:
    """Records that both sides can make: number i has value `prefix` + i and a timestamp that mostly grows."""

    def __init__(
        self,
        count: int,
        per_batch: int,
        first_timestamp: int,
        *,
        step_ms: int = 1,
        back_ms: int = 0,
        back_every: int = 1,
    ) -> None:
        self.fields: dict[str, Any] = {
            "count": count,
            "per_batch": per_batch,
            "first_timestamp": first_timestamp,
            "step_ms": step_ms,
            "back_ms": back_ms,
            "back_every": back_every,
            "prefix": "record ",
        }

    def value(self, i: int) -> bytes:
        """The value of record number i."""
        return b"record %d" % i

    def timestamp(self, i: int) -> int:
        """The timestamp of record number i, in ms; every `back_every`-th stands `back_ms` behind."""
        f = self.fields
        back = f["back_ms"] if i % f["back_every"] == 0 else 0
        return int(f["first_timestamp"] + i * f["step_ms"] - back)


def record_tuple(row: list[Any]) -> RecordTuple:
    """A record as Describe.java shows it: (offset, timestamp, key, value, ((header key, value), ...))."""
    offset, timestamp, key, value, headers = row
    pairs = tuple((name, _bytes(text)) for name, text in headers)
    return offset, timestamp, _bytes(key), _bytes(value), pairs


def record_row(timestamp: int, key: Bytes, value: Bytes, headers: Sequence[tuple[str, Bytes]] = ()) -> list[Any]:
    """A record as Batches.java takes one."""
    return [timestamp, _text(key), _text(value), [[name, _text(data)] for name, data in headers]]


def _text(data: Bytes) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> Bytes:
    return None if text is None else base64.b64decode(text)
