from typing import Self, final

from kafkalog._core.values.builder import Builder
from kafkalog._core.values.value_column import ValueColumn

FRAMINGS: dict[str, int]
OPS: dict[str, int]

Op = tuple[int, int, int, int, tuple[int, ...], tuple[int, ...], bytes, tuple[str, ...], str]

@final
class AvroProgram:
    def __new__(cls, ops: list[Op]) -> Self: ...
    def __len__(self) -> int: ...

@final
class AvroPrograms:
    def __new__(cls, programs: dict[int, AvroProgram | str]) -> Self: ...
    def __len__(self) -> int: ...

def fill(
    builder: Builder, column: ValueColumn, programs: AvroPrograms, framing: int, first: int, most_items: int
) -> tuple[int, int | None]: ...
