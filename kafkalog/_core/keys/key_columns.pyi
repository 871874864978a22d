from typing import final

from typing_extensions import Buffer

from kafkalog._core.arrow.columns import Columns
from kafkalog._core.keys.given_keys import GivenKeys
from kafkalog._core.keys.key_picker import KeyPicker

@final
class KeyColumns(KeyPicker):
    def __init__(self, keys: GivenKeys, offsets: Buffer, start_offset: int) -> None: ...
    def finish(
        self, kinds: bytes, *, topic: bytes = b"", partition: int = 0, most_rows: int = 65536, most_bytes: int = 8388608
    ) -> Columns | None: ...
