r"""Templates for the text of records: kcat's delimiters, `-f` formats and `-J` lines, for `_core.text.template`.

A template belongs to one partition: topic and partition number are literal text in it.
"""

from __future__ import annotations

import json
import re
from typing import Final

from kafkalog._core.text import template as kind
from kafkalog.errors import IllegalArgument
from kafkalog.tools.escapes import unescape_letter

Piece = tuple[int, bytes]
Pieces = list[Piece]

NO_BROKER: Final = -1
"""Value of `broker` in a JSON line: a directory's records come from no broker."""

ENCODINGS: Final = ("utf8", "base64", "hex")
_KEYS: Final = {"utf8": kind.KEY, "base64": kind.KEY_BASE64, "hex": kind.KEY_HEX}
_VALUES: Final = {"utf8": kind.VALUE, "base64": kind.VALUE_BASE64, "hex": kind.VALUE_HEX}
_TOKEN: Final = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.?)|[^%\\]+", re.DOTALL)
_DIRECTIVES: Final = {
    "o": kind.OFFSET,
    "T": kind.TIMESTAMP,
    "S": kind.VALUE_SIZE,
    "K": kind.KEY_SIZE,
    "R": kind.VALUE_SIZE_32,
    "h": kind.HEADERS,
}
_DIRECTIVE_HELP: Final = "%s %k %t %p %o %T %h %S %K %R %%"


def delimited(
    *,
    delimiter: bytes = b"\n",
    key_delimiter: bytes | None = None,
    null: bytes = b"",
    key_encoding: str = "utf8",
    value_encoding: str = "utf8",
) -> Pieces:
    """Return the template `value<delimiter>`, or `key<key_delimiter>value<delimiter>` with a key delimiter.

    null stands for a null key or value (kcat's -Z). Encodings are "utf8" (the bytes as they are), "base64" or "hex".
    """
    pieces = [_value(value_encoding, null), (kind.LITERAL, delimiter)]
    if key_delimiter is None:
        return pieces
    return [_key(key_encoding, null), (kind.LITERAL, key_delimiter), *pieces]


def formatted(
    text: str,
    *,
    topic: str,
    partition: int,
    null: bytes = b"",
    key_encoding: str = "utf8",
    value_encoding: str = "utf8",
) -> Pieces:
    r"""Return the template of kcat's -f.

    %s value, %k key, %t topic, %p partition, %o offset, %T timestamp (ms), %h headers (name=value, with commas), %S and
    %K sizes (-1 for null), %R the value's size as 4 bytes, %%; \n \t \r \0 \\ \xHH. Nothing is added at the end of a
    record. IllegalArgument for any other letter after % or \.
    """
    blobs = {"s": _value(value_encoding, null), "k": _key(key_encoding, null)}
    constants = {"t": topic, "p": str(partition), "%": "%"}
    pieces: Pieces = []
    for token in _TOKEN.finditer(text):
        letter, escape = token[1], token[2]
        if escape is not None:
            pieces.append((kind.LITERAL, unescape_letter(escape)))
        elif letter is None:
            pieces.append((kind.LITERAL, token[0].encode(errors="surrogateescape")))
        elif letter in constants:
            pieces.append((kind.LITERAL, constants[letter].encode()))
        elif letter in blobs:
            pieces.append(blobs[letter])
        elif letter in _DIRECTIVES:
            pieces.append((_DIRECTIVES[letter], b""))
        else:
            raise IllegalArgument(f"unknown directive {token[0]!r} in a format", hint=f"known are {_DIRECTIVE_HELP}")
    return _merge_literals(pieces)


def json_lines(
    *,
    topic: str,
    partition: int,
    broker: int = NO_BROKER,
    key_encoding: str = "utf8",
    value_encoding: str = "utf8",
) -> Pieces:
    """Return the template of kcat's -J: one JSON object to a line.

    The fields are topic, partition, offset, tstype, ts, broker, headers (a flat list of names and values, left out if
    there are none), key, payload. Bytes that are not UTF-8 are base64, as given in `key_encoding`, `payload_encoding`
    or `headers_encoding`; keys or payloads for which "base64" or "hex" is requested are always encoded. Null is null.
    """
    start = f'{{"topic":{json.dumps(topic)},"partition":{partition},"offset":'
    return [
        (kind.LITERAL, start.encode()),
        (kind.OFFSET, b""),
        (kind.LITERAL, b',"tstype":"'),
        (kind.TIMESTAMP_TYPE, b""),
        (kind.LITERAL, b'","ts":'),
        (kind.TIMESTAMP, b""),
        (kind.LITERAL, f',"broker":{broker}'.encode()),
        (kind.JSON_HEADERS, b""),
        (kind.LITERAL, b","),
        (kind.JSON_KEY, _json_encoding(key_encoding)),
        (kind.LITERAL, b","),
        (kind.JSON_VALUE, _json_encoding(value_encoding)),
        (kind.LITERAL, b"}\n"),
    ]


def _key(encoding: str, null: bytes) -> Piece:
    return _KEYS[_check_encoding(encoding)], null


def _value(encoding: str, null: bytes) -> Piece:
    return _VALUES[_check_encoding(encoding)], null


def _json_encoding(encoding: str) -> bytes:
    return b"" if _check_encoding(encoding) == "utf8" else encoding.encode()


def _check_encoding(encoding: str) -> str:
    if encoding not in ENCODINGS:
        raise IllegalArgument(f"unknown encoding {encoding!r}", hint=f"the encodings are {', '.join(ENCODINGS)}")
    return encoding


def _merge_literals(pieces: Pieces) -> Pieces:
    """Return the template with adjacent literals merged."""
    merged: Pieces = []
    for piece, text in pieces:
        if piece == kind.LITERAL and merged and merged[-1][0] == kind.LITERAL:
            merged[-1] = (kind.LITERAL, merged[-1][1] + text)
        else:
            merged.append((piece, text))
    return merged
