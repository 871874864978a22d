r"""Escapes in formats and delimiters of the command line: \n \t \r \0 \\ \xHH, as in C and in kcat."""

from __future__ import annotations

import re
from typing import Final

from kafkalog.errors import IllegalArgument

_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|.?)", re.DOTALL)
_LETTERS: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def unescape(text: str) -> bytes:
    """Return a delimiter as bytes: escapes decoded, other bytes as typed. IllegalArgument as for `unescape_letter`."""
    typed = text.encode(errors="surrogateescape")
    return _ESCAPE.sub(lambda found: unescape_letter(found[1].decode(errors="replace")), typed)


def unescape_letter(letter: str) -> bytes:
    r"""Return the byte that `letter` (xHH with its digits) means after a backslash; IllegalArgument if it is unknown.
    """
    if len(letter) == 3:
        return bytes([int(letter[1:], 16)])
    if letter not in _LETTERS:
        text = f"unknown escape \\{letter} in a format or a delimiter"
        raise IllegalArgument(text, hint=r"the escapes are \n \t \r \0 \\ \xHH")
    return _LETTERS[letter]
