from typing import Self, final

from kafkalog._core.values.builder import Builder, Field

KINDS: tuple[str, ...]
LABELS: tuple[str, ...]
ABSENTS: tuple[str, ...]
FRAMINGS: tuple[str, ...]

Message = tuple[
    tuple[int, str, str, str, int, int, bool, "Message | None", bytes, tuple[tuple[int, str], ...], str], ...
]

@final
class ProtobufRows:
    def __new__(cls, fields: Field, message: Message, framing: str = "auto", indexes: tuple[int, ...] = ()) -> Self: ...
    def decode(self, column: object, most_bytes: int = 1 << 30) -> Builder: ...
