from typing import Self, final

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
