"""Sizes and names as a repr shows them."""

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
