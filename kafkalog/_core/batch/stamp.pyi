from typing_extensions import Buffer

class BadBatch(ValueError):
    position: int
    def __init__(self, message: str, position: int) -> None: ...

def stamp_producer(batches: Buffer, producer_id: int, producer_epoch: int, base_sequence: int) -> int: ...
