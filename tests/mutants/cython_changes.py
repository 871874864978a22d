"""The single-point changes of a Cython file, by its text."""

from __future__ import annotations

import io
import re
import tokenize

from tests.mutants.python_changes import CALCULATED, COMPARED, JOINED, Change

WORDS = dict([*COMPARED.values(), *CALCULATED.values(), *JOINED.values()])
DECLARED = re.compile(
    r"\s*(?:cdef\b(?!.*=)|c?import\b|from\b|@|(?:cdef|cpdef|def|class|enum|struct|ctypedef)\b.*[(:]\s*$)"
)
"""A line that declares: its signs and numbers are types, sizes and defaults."""


def cython_changes(path: str, source: bytes) -> list[Change]:
    """Return the changes of its operators, numbers and conditions."""
    starts = [0]
    for line in source.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    found = []
    for token in tokenize.generate_tokens(io.StringIO(source.decode()).readline):
        number, column = token.start
        if DECLARED.match(token.line) or "extern" in token.line or not token.line.isascii():
            continue
        start = starts[number - 1] + column
        is_spaced = token.line[column - 1 : column] == " " == token.line[token.end[1] : token.end[1] + 1]
        if token.string in WORDS and is_spaced:
            new = WORDS[token.string]
        elif token.type == tokenize.NUMBER and re.fullmatch(r"\d+|0x[0-9a-fA-F]+", token.string):
            new = str(int(token.string, 0) + 1)
        elif token.string == "if" and (match := re.fullmatch(r"\s*if (.+):\s*", token.line)):
            start, token = start + 3, token._replace(string=match[1])
            new = f"not ({match[1]})"
        else:
            continue
        found.append(Change(path, number, start, start + len(token.string), token.string, new))
    return found
