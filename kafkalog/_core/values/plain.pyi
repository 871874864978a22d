from kafkalog._core.values.builder import Builder
from kafkalog._core.values.value_column import ValueColumn

def fill(builder: Builder, column: ValueColumn, uuid: bool = False) -> int: ...
