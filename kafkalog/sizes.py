"""Sizes in bytes as people read them."""

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
