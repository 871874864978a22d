from kafkalog._core.batch.decode import RecordTable

RECORD_OFFSET: int
RECORD_RANGE: int
BATCH_TIME: int

def record_fault(table: RecordTable, first: int = 0) -> tuple[int, int, int] | None: ...
