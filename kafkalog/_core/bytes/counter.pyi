from typing import final

@final
class Counter:
    count: int
    total: int
    def add(self, amount: int) -> None: ...
