"""Arithmetic of producer sequence numbers, which wrap from 2^31-1 to 0 (format.md section 1; REC-13)."""

MAX_SEQUENCE = 2**31 - 1


def increment_sequence(sequence: int, by: int) -> int:
    """Return the sequence number `by` steps after this one; 2147483647 is followed by 0.

    Raises ValueError unless both are from 0 to 2147483647.
    """
    _check(sequence, by)
    return (sequence + by) & MAX_SEQUENCE


def decrement_sequence(sequence: int, by: int) -> int:
    """Return the sequence number `by` steps before this one; 0 is preceded by 2147483647.

    Raises ValueError unless both are from 0 to 2147483647.
    """
    _check(sequence, by)
    return (sequence - by) & MAX_SEQUENCE


def _check(sequence: int, by: int) -> None:
    if not (0 <= sequence <= MAX_SEQUENCE and 0 <= by <= MAX_SEQUENCE):
        raise ValueError(f"sequence {sequence} and step {by} must be between 0 and {MAX_SEQUENCE}")
