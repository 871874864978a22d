from collections.abc import Callable, Mapping
from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.ready_batch import ReadyBatch
from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.log.log_fields import LogFields
from kafkalog._core.log.state import LogState
from kafkalog._core.log.values import LogAppendInfo

@final
class AppendEngine:
    def __init__(
        self,
        core: LogFields,
        hooks: Mapping[str, object],
        write: Callable[[ReadyBatch, int, int], LogAppendInfo],
        flush_if_due: Callable[[], object],
    ) -> None: ...
    def append_ready(
        self,
        buffer: Buffer | ReadyBatch | None,
        *,
        leader_epoch: int | None = None,
        table: BatchTable | None = None,
        any_base_offset: bool = False,
        now_ms: int | None = None,
    ) -> LogAppendInfo | None: ...
    def append_run(
        self,
        buffer: Buffer,
        table: BatchTable,
        now: int,
        *,
        keeps_offsets: bool,
        leader_epoch: int = -1,
        append_time: int = -1,
    ) -> LogState | None: ...
    def put_noted(self) -> None: ...
