from typing_extensions import Buffer

class BatchWalk:
    base_offset: int
    position: int
    end: int
    value: int
    def check(self, buf: Buffer, start: int, length: int) -> int: ...
    def check_file(self, fd: int, room: Buffer, most: int) -> tuple[int, int, int]: ...
