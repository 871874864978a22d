from typing_extensions import Buffer

class BatchWalk:
    base_offset: int
    position: int
    end: int
    value: int
    def check(self, buf: Buffer, start: int, length: int) -> int: ...
