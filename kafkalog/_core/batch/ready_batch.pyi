from typing import Any, final

@final
class ReadyBatch:
    is_built: bool
    @property
    def data(self) -> Any: ...
    @property
    def size(self) -> int: ...
