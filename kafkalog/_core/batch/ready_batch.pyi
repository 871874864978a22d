from typing import Any, final

@final
class ReadyBatch:
    is_built: bool
    data: Any
    size: int
