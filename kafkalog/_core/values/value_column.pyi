from typing import final

from typing_extensions import Self

@final
class ValueColumn:
    count: int
    def __new__(cls, column: object) -> Self: ...
    def __len__(self) -> int: ...
