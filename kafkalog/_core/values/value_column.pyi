from typing import Self, final

@final
class ValueColumn:
    count: int
    def __new__(cls, column: object) -> Self: ...
    def __len__(self) -> int: ...
