from typing import Final

from kafkalog._core.arrow.input import ArrowSource

ROLE_NAMES: Final[tuple[str, ...]]

class RowPlan:
    columns: dict[str, str]
    def __init__(self, source: ArrowSource, names: dict[str, str | None] | None = None) -> None: ...

class Rows:
    count: int
    def __len__(self) -> int: ...

def next_rows(source: ArrowSource, plan: RowPlan) -> Rows | None: ...
