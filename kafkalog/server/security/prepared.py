"""SASLprep of names and passwords (RFC 4013), by the tables of Python's `stringprep`."""

from __future__ import annotations

import stringprep
import unicodedata

from kafkalog.errors import IllegalArgument

_PROHIBITED = (
    stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
    stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
    stringprep.in_table_c9, stringprep.in_table_a1,
)  # fmt: skip


def prepared(text: str, what: str) -> str:
    """Return the text if it is in its normal form; IllegalArgument otherwise.

    Kafka's clients send a text unchanged, and others send its normal form; if both are equal, it works with all
    clients.
    """
    if not text:
        raise IllegalArgument(f"the {what} is empty")
    mapped = "".join(
        " " if stringprep.in_table_c12(letter) else letter for letter in text if not stringprep.in_table_b1(letter)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    if any(test(letter) for letter in normal for test in _PROHIBITED):
        raise IllegalArgument(f"the {what} has a control character or another one that text cannot contain")
    if any(map(stringprep.in_table_d1, normal)):
        if any(map(stringprep.in_table_d2, normal)):
            raise IllegalArgument(f"the {what} mixes letters of both directions")
        if not (stringprep.in_table_d1(normal[0]) and stringprep.in_table_d1(normal[-1])):
            raise IllegalArgument(f"the {what} is right-to-left, but does not start and end with such letters")
    if normal != text:
        raise IllegalArgument(
            f"the {what} is not in normal form: some clients would send a different text",
            hint="use plain letters, digits and signs",
        )
    return text
