"""Fields of JSON lines as text, as they are in the line: `from_json` makes doubles of numbers with a fraction."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from json import JSONDecodeError, JSONDecoder
from typing import TYPE_CHECKING, Final

from kafkalog.errors import InvalidRecord

if TYPE_CHECKING:
    import pyarrow

_DECODER: Final = JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_SHOWN: Final = 80


def with_fields(batches: Iterable[pyarrow.RecordBatch], *, names: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
    """Yield batches of lines, their only column, with the fields `names` of each as further columns of text.

    Raises InvalidRecord for a line that is no JSON object.
    """
    import pyarrow as pa

    for batch in batches:
        rows = [fields_of(line) for line in batch.column(0).cast(pa.binary()).to_pylist()]
        columns = [pa.array([row.get(name) for row in rows], pa.string()) for name in names]
        yield pa.record_batch([batch.column(0), *columns], names=[batch.schema.names[0], *names])


def fields_of(line: bytes) -> dict[str, str | None]:
    """Return the fields of a JSON object: strings without quotes, other values as they are written, null as None.

    Raises InvalidRecord for anything but an object, and for a string that is no Unicode.
    """
    found: dict[str, str | None] = {}
    try:
        text = line.decode()
        at = _after(text, "{", _space(text, 0))
        more = not text.startswith("}", at)
        while more:
            if not text.startswith('"', at):
                raise JSONDecodeError("a name is expected", text, at)
            name, at = _value(text, at)
            assert name is not None
            found[name], at = _value(text, _after(text, ":", at))
            more = text.startswith(",", at)
            at = _after(text, ",", at) if more else at
        if _after(text, "}", at) != len(text):
            raise JSONDecodeError("text follows the object", text, at)
        "".join(value for value in found.values() if value is not None).encode()  # raises at half a surrogate pair
    except (ValueError, RecursionError) as error:
        raise InvalidRecord(f"malformed JSON: {error}: in the line {line[:_SHOWN]!r}") from None
    return found


def _value(line: str, at: int) -> tuple[str | None, int]:
    """Return the value at a position, as `fields_of` does, and the position of what follows it."""
    value, end = _DECODER.raw_decode(line, at)
    text = value if line[at] == '"' else line[at:end]
    return None if value is None else text, _space(line, end)


def _after(line: str, mark: str, at: int) -> int:
    """Return the position after a mark and the space behind it; JSONDecodeError without it."""
    if not line.startswith(mark, at):
        raise JSONDecodeError(f"{mark} is expected", line, at)
    return _space(line, at + 1)


def _space(line: str, at: int) -> int:
    found = _SPACE.match(line, at)
    return at if found is None else found.end()
