"""kafkalog's source refuses the options that Spark's own Kafka source refuses, in words that name the option."""

import pytest

from kafkalog.errors import KafkalogError
from kafkalog.spark.options import SourceOptions
from tests.spark.beside_kafka import BesideKafka, refusal

pytest.importorskip("pyspark", reason="PySpark is not installed")

TOPIC = "refusals"
S = {"subscribe": TOPIC}
# what both refuse before they read a topic -> a word of kafkalog's message that says what is wrong
BATCH = [
    ({}, "subscribe"),
    (S | {"assign": f'{{"{TOPIC}":[0]}}'}, "assign"),
    ({"subscribe": ""}, "subscribe"),
    ({"subscribe": " , "}, "subscribe"),
    ({"subscribePattern": ""}, "subscribePattern"),
    ({"assign": "no JSON"}, "assign"),
    ({"assign": ""}, "assign"),
    (S | {"startingOffsets": "latest"}, "startingOffsets"),
    (S | {"startingOffsets": f'{{"{TOPIC}":{{"0":-1}}}}'}, "startingOffsets"),
    (S | {"endingOffsets": "earliest"}, "endingOffsets"),
    (S | {"endingOffsets": f'{{"{TOPIC}":{{"0":-2}}}}'}, "endingOffsets"),
    (S | {"startingOffsets": "{"}, "startingOffsets"),
    (S | {"startingOffsets": f'{{"{TOPIC}":[0]}}'}, "startingOffsets"),
    (S | {"startingOffsetsByTimestamp": "yesterday"}, "startingOffsetsByTimestamp"),
    (S | {"startingTimestamp": "yesterday"}, "startingTimestamp"),
    (S | {"startingOffsetsByTimestampStrategy": "guess"}, "startingOffsetsByTimestampStrategy"),
    (S | {"minPartitions": "0"}, "minPartitions"),
    (S | {"minPartitions": "many"}, "minPartitions"),
    (S | {"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition"),
    (S | {"failOnDataLoss": "perhaps"}, "failOnDataLoss"),
]
STREAM = [
    (S | {"endingOffsets": "latest"}, "endingOffsets"),
    (S | {"endingOffsetsByTimestamp": f'{{"{TOPIC}":{{"0":1}}}}'}, "endingOffsetsByTimestamp"),
    (S | {"startingOffsets": "never"}, "startingOffsets"),
    (S | {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"}, "minOffsetsPerTrigger"),
]
# what both refuse when they plan a batch
PLANNED = [
    (S | {"startingOffsets": f'{{"{TOPIC}":{{"0":0}}}}'}, f"missing {TOPIC}-1"),  # partition 1 is not named
    (S | {"startingOffsets": f'{{"{TOPIC}":{{"0":0,"1":0,"2":0}}}}'}, f"unexpected {TOPIC}-2"),
    (
        S | {"startingOffsets": f'{{"{TOPIC}":{{"0":2,"1":0}}}}', "endingOffsets": f'{{"{TOPIC}":{{"0":1,"1":0}}}}'},
        "is after its ending offset 1",
    ),
    (S | {"startingTimestamp": "99999999999999"}, "99999999999999"),
]


@pytest.fixture(scope="module")
def kafka(beside: BesideKafka) -> BesideKafka:
    beside.create(TOPIC, 2)
    beside.send(TOPIC, [(p, 1_700_000_000_000 + i, None, b"v", ()) for p in range(2) for i in range(3)])
    return beside


def ours(options: dict[str, str], *, streaming: bool) -> str:
    """Return the error of kafkalog's options."""
    with pytest.raises(KafkalogError) as refused:
        parsed = SourceOptions.parse({"path": "/data", **options}, streaming=streaming)
        assert parsed.subscription is not None  # else asked for when the directory is looked at
        raise AssertionError(parsed)
    return str(refused.value)


@pytest.mark.parametrize(("options", "word"), BATCH)
def test_a_batch_that_both_refuse(kafka: BesideKafka, options: dict[str, str], word: str) -> None:
    assert refusal(lambda: kafka.theirs(options).count()) is not None
    if options:
        assert word.lower() in ours(options, streaming=False).lower()
    else:
        assert word in str(refusal(lambda: kafka.ours(options).count()))


@pytest.mark.parametrize(("options", "word"), STREAM)
def test_a_stream_that_both_refuse(kafka: BesideKafka, options: dict[str, str], word: str) -> None:
    assert refusal(lambda: kafka.run_stream("kafka", options)) is not None
    assert word.lower() in ours(options, streaming=True).lower()


@pytest.mark.parametrize(("options", "word"), PLANNED)
def test_bounds_that_both_refuse(kafka: BesideKafka, options: dict[str, str], word: str) -> None:
    assert refusal(lambda: kafka.theirs(options).count()) is not None
    found = refusal(lambda: kafka.ours(options).count())
    assert found is not None and TOPIC in found and word in found


def test_a_topic_that_is_not_there(kafka: BesideKafka) -> None:
    options = {"subscribe": "absent"}
    assert "UnknownTopicOrPartition" in str(refusal(lambda: kafka.theirs(options).count()))
    assert "UnknownTopicOrPartition" in str(refusal(lambda: kafka.ours(options).count()))
