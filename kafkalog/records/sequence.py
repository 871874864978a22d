"""Arithmetic of producer sequence numbers, which wrap from 2^31-1 to 0 (format.md section 1; REC-13)."""

MAX_SEQUENCE = 2**31 - 1


def increment_sequence(sequence: int, by: int) -> int:
    """The sequence number `by` steps after this one; after 2147483647 comes 0.

    Both are from 0 to 2147483647; anything else is a ValueError.
    """
    _check(sequence, by)
    return (sequence + by) & MAX_SEQUENCE


def decrement_sequence(sequence: int, by: int) -> int:
    """The sequence number `by` steps before this one; before 0 comes 2147483647.

    Both are from 0 to 2147483647; anything else is a ValueError.
    """
    _check(sequence, by)
    return (sequence - by) & MAX_SEQUENCE


def _check(sequence: int, by: int) -> None:
    if not (0 <= sequence <= MAX_SEQUENCE and 0 <= by <= MAX_SEQUENCE):
        raise ValueError(f"sequence {sequence} and step {by} must lie between 0 and {MAX_SEQUENCE}")
