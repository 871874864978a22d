from typing import final

@final
class ProducerTrace:
    producer_ids: list[int]
