from typing import final

@final
class SectionTable:
    held_bytes: int
    def __init__(self, room: int) -> None: ...
