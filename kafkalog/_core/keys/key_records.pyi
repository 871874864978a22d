from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.record import Record
from kafkalog._core.keys.given_keys import GivenKeys
from kafkalog._core.keys.key_picker import KeyPicker

@final
class KeyRecords(KeyPicker):
    records: list[Record | None]
    def __init__(self, keys: GivenKeys, offsets: Buffer, start_offset: int, most_bytes: int = ...) -> None: ...
    def finish(self) -> None: ...
