"""Options of the dump tool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalog.tools.dump.record_readers import RecordReader

MAX_MESSAGE_BYTES: Final = 5 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """The reference tool's options.

    max_bytes: number of bytes to read of a `.log` file, None for all. max_message_size: maximum size of the batch at
    the position of an index entry. reader: creates the decoder of keys and values when a `.log` file is dumped (None:
    they are printed as text). A decoder implies print_data_log, and that implies deep_iteration.
    """

    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_bytes: int | None = None
    max_message_size: int = MAX_MESSAGE_BYTES
    reader: Callable[[], RecordReader | None] | None = None

    @property
    def data(self) -> bool:
        """True if keys and values are printed."""
        return self.print_data_log or self.reader is not None

    @property
    def deep(self) -> bool:
        """True if record lines are printed."""
        return self.deep_iteration or self.data
