"""One batch of a segment file damaged in each way that a flipped bit can: its size, its base offset, its bytes."""

from collections.abc import Callable
from pathlib import Path

from kafkalog._core.batch.scan import scan


def _flipped(at: int, bit: int) -> Callable[[bytearray, int], None]:
    def flip(data: bytearray, position: int) -> None:
        data[position + at] ^= bit

    return flip


DAMAGE: dict[str, Callable[[bytearray, int], None]] = {
    "size too large for the file": _flipped(8, 0x40),
    "size a little larger": _flipped(10, 0x01),
    "size other by one bit": _flipped(11, 0x10),
    "size negative": _flipped(8, 0x80),
    "base offset higher": _flipped(6, 0x01),
    "base offset negative": _flipped(0, 0x80),
    "bytes": _flipped(61, 0x04),
}


def damage(path: Path, number: int, kind: str) -> int:
    """Damages batch `number` of a `.log` file; the position where it begins."""
    data = bytearray(path.read_bytes())
    position = scan(data).position(number)
    DAMAGE[kind](data, position)
    path.write_bytes(data)
    return position
