from typing_extensions import Buffer

from kafkalog._core.text.text_buffer import TextBuffer

OFFSET_ENTRY_BYTES: int
TIME_ENTRY_BYTES: int

def list_entries(text: TextBuffer, buffer: Buffer, base_offset: int, *, times: bool, first: bool) -> bool: ...
