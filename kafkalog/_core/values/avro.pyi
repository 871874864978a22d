from kafkalog._core.values.avro_program import AvroPrograms
from kafkalog._core.values.builder import Builder
from kafkalog._core.values.value_column import ValueColumn

FRAMINGS: dict[str, int]

def fill(
    builder: Builder, column: ValueColumn, programs: AvroPrograms, framing: int, first: int, most_items: int
) -> tuple[int, int | None]: ...
