from typing import final

@final
class ProducerTrace:
    @property
    def producer_ids(self) -> list[int]: ...
