from kafkalog._core.log.producer_state import ProducerState

class CompletedTxn:
    """A transaction that a marker ended: its producer, its first offset, the marker's offset, and how it ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool

    def __init__(self, producer_id: int, first_offset: int, last_offset: int, is_aborted: bool) -> None: ...

class Staged:
    """The changes that the batches of one append would make, or the rule that batch `row` breaks."""

    fault: int
    row: int
    end_offset: int
    duplicate: tuple[int, int, int] | None
    known: ProducerState | None
    coordinator_epoch: int
    is_plain: bool

    @property
    def completed(self) -> list[CompletedTxn]: ...
    @property
    def producer_ids(self) -> list[int]: ...
