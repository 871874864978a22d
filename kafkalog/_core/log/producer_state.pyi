class ProducerState:
    """One producer as the log knows it; unknown values are -1, times are ms.

    `batches` holds at most the last five as (first sequence, last sequence, first offset, last offset, timestamp),
    oldest first: what a resent batch is compared with. Without any, the producer is known from a marker alone.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int
    current_txn_first_offset: int

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = -1,
        last_sequence: int = -1,
        last_offset: int = -1,
        offset_delta: int = 0,
        timestamp: int = -1,
        coordinator_epoch: int = -1,
        current_txn_first_offset: int = -1,
    ) -> None: ...
    @property
    def batches(self) -> list[tuple[int, int, int, int, int]]: ...
    @property
    def first_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    def entry(self) -> tuple[int, int, int, int, int, int, int, int]: ...
