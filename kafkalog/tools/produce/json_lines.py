"""Conversion of `consume -J` output, one JSON object per line, to record batches."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kafkalog._core.batch.encode import BatchBuilder
from kafkalog._core.bytes.murmur import partition_for_key
from kafkalog.errors import FormatError, InvalidTimestamp, RecordTooLarge, UnknownTopicOrPartition
from kafkalog.records.packing import PLAIN, Compression
from kafkalog.tools.produce.queue import Sink, WriteQueue

_DECODERS: dict[str, Callable[[str], bytes]] = {
    "utf8": lambda text: text.encode(),
    "utf-8": lambda text: text.encode(),
    "base64": lambda text: base64.b64decode(text, validate=True),
    "hex": bytes.fromhex,
}
_MEANT: Final = {"value": "payload", "timestamp": "ts"}
"""Names that other formats use, with the names of these fields."""
_GROWTH: Final = 6  # the most letters that JSON has for a byte: \u00xx
_FIELDS_BYTES: Final = 1 << 16  # room for names of fields and blanks
Headers = tuple[tuple[bytes, bytes | None], ...]


class JsonRecord(NamedTuple):
    """The record fields of one line; None for fields that the line lacks."""

    partition: int | None
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str | None = None
    offset: int | None = None
    is_append_time: bool = False


def parse_record(line: bytes, name: str, number: int) -> JsonRecord:
    """Parse a JSON line with kcat's fields.

    `key_encoding` and `payload_encoding` give the encoding of text that is not UTF-8 (base64 or hex). FormatError names
    the file and the line if it is no such object.
    """
    try:
        fields = json.loads(line)
        if not isinstance(fields, dict):
            raise ValueError(f"the line must be an object, not {type(fields).__name__}")
        _check_names(fields)
        return JsonRecord(
            _number(fields, "partition"),
            _number(fields, "ts"),
            _data(fields, "key"),
            _data(fields, "payload"),
            _headers(fields.get("headers"), fields.get("headers_encoding")),
            _text(fields, "topic"),
            _number(fields, "offset"),
            fields.get("tstype") == "logappend",
        )
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise FormatError(
            f"line {number} is not a record: {error}",
            path=name,
            hint="a line is an object as `kafkalog consume -J` prints it: "
            '{"partition": 0, "ts": 1700000000000, "key": null, "payload": "text", "headers": []}',
        ) from None


def _check_names(fields: dict[str, object]) -> None:
    """Raise ValueError for fields that would be ignored, and leave the record without its value or time."""
    for name, meant in _MEANT.items():
        if name in fields and meant not in fields:
            raise ValueError(f"it has {name!r}, and no {meant!r}")
    for name in ("key_error", "value_error"):
        if (reason := fields.get(name)) is not None:
            raise ValueError(f"it was exported decoded, and {name} says why the bytes are missing: {reason!r:.200}")


def _number(fields: dict[str, object], name: str) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63):
        return value
    raise ValueError(f"{name} must be a 64-bit integer, not {value!r}")


def _text(fields: dict[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is None or isinstance(value, str):
        (value or "").encode()  # JSON can have half a character
        return value
    raise ValueError(f"{name} must be a string, not {type(value).__name__}")


def _data(fields: dict[str, object], name: str) -> bytes | None:
    return _decoded(fields.get(name), fields.get(f"{name}_encoding"), name)


def _decoded(value: object, encoding: object, name: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string or null, not {type(value).__name__}")
    decoder = _DECODERS.get(str(encoding or "utf8").lower())
    if decoder is None:
        raise ValueError(f"{name}_encoding {encoding!r} is not one of {', '.join(_DECODERS)}")
    try:
        return decoder(value)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name} is not {encoding or 'utf8'}: {error}") from None


def _headers(given: object, encoding: object) -> Headers:
    """Parse headers as kcat prints them: names and values in turn in one list; pairs are accepted as well.

    `encoding` is that of names and values alike.
    """
    if given is None:
        return ()
    if not isinstance(given, list):
        raise ValueError(f"headers must be a list, not {type(given).__name__}")
    if all(isinstance(one, list) and len(one) == 2 for one in given):
        pairs = [(one[0], one[1]) for one in given]
    elif len(given) % 2:
        raise ValueError("headers have a name without a value")
    else:
        pairs = list(zip(given[::2], given[1::2], strict=True))
    out = []
    for name, value in pairs:
        raw = _decoded(name, encoding, "a header name")
        if raw is None:
            raise ValueError("a header name is null")
        out.append((raw, _decoded(value, encoding, "a header")))
    return tuple(out)


class JsonProducer:
    """Appends the records of JSON lines; it has the interface of `Producer`.

    A record goes to `partition` if that is given, else to its own "partition", else by its key, else to one partition
    until that one's batch closes. Timestamps, keys, values and headers are the line's. `max_record_bytes` bounds the
    memory for a line: a record takes at most six times as many bytes in JSON.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        *,
        batch_bytes: int,
        milliseconds: Callable[[], int],
        compression: Compression = PLAIN,
        fixed: bool = False,
        max_record_bytes: int = 1_048_588,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        self._queue = WriteQueue(sinks, compression, strict=True)
        self._count = len(sinks)
        self._builders = [BatchBuilder(batch_bytes) for _ in sinks]
        self._fixed = fixed
        self._max_line_bytes = _GROWTH * max_record_bytes + _FIELDS_BYTES
        self._sticky = 0
        self._milliseconds = milliseconds
        self._progress = progress

    def read_lines(self, fd: int, name: str) -> None:
        """Read every line of an open file; empty lines are skipped."""
        with open(fd, "rb", buffering=1 << 18, closefd=False) as file:
            for number, line in enumerate(iter(lambda: file.readline(self._max_line_bytes), b""), 1):
                if len(line) == self._max_line_bytes:
                    raise RecordTooLarge(
                        f"line {number} has {self._max_line_bytes} bytes or more",
                        path=name,
                        hint="check that each record has a line of its own, or raise max.message.bytes of the topic",
                    )
                if self._progress is not None:
                    self._progress(len(line))
                if line.strip():
                    self._add(parse_record(line, name, number), name, number)

    def flush(self) -> None:
        """Close every open batch and append it; after a failed write append nothing, so that no gap arises."""
        for number in range(self._count):
            self._close_batch(number)
        self._queue.drain()

    def close(self) -> None:
        """End the compression threads, without a flush."""
        self._queue.close()

    def _add(self, record: JsonRecord, name: str, line: int) -> None:
        timestamp = record.timestamp
        if timestamp is None or timestamp == -1:
            timestamp = self._milliseconds()
        elif timestamp < 0:
            raise InvalidTimestamp(f"line {line} has the negative timestamp {timestamp}", path=name)
        number = self._partition(record, name, line)
        if self._append_to_batch(number, record, timestamp):
            return
        self._close_batch(number)
        if number == self._sticky:
            self._sticky = (number + 1) % self._count
            number = self._partition(record, name, line)
        if not self._append_to_batch(number, record, timestamp):
            self._close_batch(number)
            self._append_to_batch(number, record, timestamp)

    def _append_to_batch(self, number: int, record: JsonRecord, timestamp: int) -> bool:
        """Append the record to the open batch of a partition; return False if it does not fit.

        An empty batch takes any record.
        """
        return self._builders[number].append(record.value, record.key, timestamp, record.headers)

    def _partition(self, record: JsonRecord, name: str, line: int) -> int:
        count = self._count
        if self._fixed:
            return 0
        if record.partition is not None:
            if not 0 <= record.partition < count:
                raise UnknownTopicOrPartition(
                    f"line {line} is for partition {record.partition}, but the topic has {count}",
                    path=name,
                    hint="give -p to write all to one partition, or create the topic with more partitions",
                )
            return record.partition
        return self._sticky if record.key is None else partition_for_key(record.key, count)

    def _close_batch(self, number: int) -> None:
        queue = self._queue
        if self._builders[number].count and not queue.stopped:
            queue.stopped = True  # until the queue has the batch taken from the builder
            queue.put(number, self._builders[number].build())
