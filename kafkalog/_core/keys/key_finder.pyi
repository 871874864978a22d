from typing import final

from typing_extensions import Buffer

from kafkalog._core.keys.key_walk import KeyWalk

@final
class KeyFinder(KeyWalk):
    def __init__(
        self, secret: bytes, hashes: Buffer, start_offset: int, stop_offset: int, every: bool = False
    ) -> None: ...
    @property
    def last_offsets(self) -> bytes: ...
    def take_found(self) -> list[int]: ...
