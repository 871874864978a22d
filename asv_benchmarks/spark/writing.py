"""The bar of the sink: ready-made rows into a topic, by kafkalog into a directory and by Spark's Kafka sink."""

import itertools
from pathlib import Path

from asv_benchmarks.spark.contest import Bar, race, ratio_bar
from asv_benchmarks.spark.queries import Sources

SINK_BAR = 4.0
TOPIC = "written"
COLUMNS = "key,value"
KAFKA_SINK = "Spark's Kafka sink"


def sink_bars(sources: Sources, rows: int, scratch: Path) -> list[Bar]:
    """Each run of ours goes into a new directory; the broker makes the topic when it is first written to."""
    numbers = itertools.count()
    made = sources.spark.read.format("readybatches").options(rows=rows, partitions=sources.cores, columns=COLUMNS)

    def ours() -> None:
        data = scratch / f"sink{next(numbers)}"
        data.mkdir()
        made.load().write.format("kafkalog").option("topic", TOPIC).mode("append").save(str(data))

    def theirs() -> None:
        writer = made.load().write.format("kafka").option("kafka.bootstrap.servers", sources.bootstrap)
        writer.option("topic", TOPIC).save()

    spent = race({KAFKA_SINK: theirs, "kafkalog": ours})
    return [ratio_bar("sink", spent, KAFKA_SINK, SINK_BAR, rows)]
