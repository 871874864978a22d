from typing import Self, final

from kafkalog._core.values.builder import Builder, Field

KINDS: tuple[str, ...]
FRAMINGS: tuple[str, ...]

Spot = tuple[str, str, str, tuple["Spot", ...]]

@final
class JsonRows:
    def __new__(cls, fields: Field, spots: Spot, framing: str = "auto", strict: bool = True) -> Self: ...
    def decode(self, column: object, most_bytes: int = 1 << 30) -> Builder: ...
