"""Sizes and names as a repr shows them, and messages that hold names which anybody may have given to a file."""

from __future__ import annotations


def human_size(size: int) -> str:
    """`82 B`, `3.2 KiB`, `2.1 GiB`: units of 1024, one digit after the point."""
    if abs(size) < 1024:
        return f"{size} B"
    amount = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        amount /= 1024
        if abs(amount) < 1023.95 or unit == "TiB":
            return f"{amount:.1f} {unit}"
    raise AssertionError("unreachable")


def shortened(text: str, width: int) -> str:
    """`text`, or its start and its end with "..." between them, in at most `width` characters (at least 5)."""
    width = max(width, 5)
    if len(text) <= width:
        return text
    head = (width - 3) // 3
    return f"{text[:head]}...{text[len(text) - (width - 3 - head) :]}"


def one_message(text: str) -> str:
    r"""`text` without what a terminal would act on: such characters as escapes; line ends and tabs stay.

    >>> one_message("caf\u00e9 \x1b[2J\u202e\udcff")
    'café \\x1b[2J\\u202e\\udcff'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)
