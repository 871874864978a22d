class BadArrow(ValueError):
    kind: str
    column: str | None
    row: int
    hint: str | None
    def __init__(
        self, message: str, kind: str, column: str | None = None, row: int = -1, hint: str | None = None
    ) -> None: ...

class HeldSchema: ...
class HeldArray: ...

class ArrowSource:
    schema: HeldSchema
    def __init__(self, source: object) -> None: ...
