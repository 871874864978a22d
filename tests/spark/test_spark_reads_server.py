"""Spark's own Kafka source and sink against a kafkalog server: batches, streams, and their writes."""

from tests.spark.beside_kafka import BesideKafka, Sent, rows_of, same

ROWS: list[Sent] = [
    (number % 3, 1_700_000_000_000 + number, b"key-%d" % number, None if number % 7 == 0 else b"value-%d" % number,
     [("header", b"%d" % number)] if number % 2 else [])
    for number in range(600)
]  # fmt: skip


def test_a_batch_reads_what_our_own_source_reads(served: BesideKafka) -> None:
    served.create("batch", 3)
    served.send("batch", ROWS[:300], compression_type="zstd")
    served.send("batch", ROWS[300:])
    rows = same(served, subscribe="batch", includeHeaders="true")
    assert len(rows) == 600
    assert {row.value for row in rows} == {value for _, _, _, value, _ in ROWS}


def test_offsets_and_times_bound_a_batch(served: BesideKafka) -> None:
    served.create("bounds", 1)
    served.send("bounds", [(0, 1000 * (number + 1), None, b"%d" % number, ()) for number in range(10)])
    between = {"startingOffsets": '{"bounds":{"0":2}}', "endingOffsets": '{"bounds":{"0":7}}'}
    rows = rows_of(served.theirs({"subscribe": "bounds", **between}))
    assert [row.offset for row in rows] == [2, 3, 4, 5, 6]
    rows = rows_of(served.theirs({"subscribe": "bounds", "startingTimestamp": "4500"}))
    assert [row.offset for row in rows] == [4, 5, 6, 7, 8, 9]


def test_transactions_that_were_aborted_are_not_read(served: BesideKafka) -> None:
    served.create("transactions", 1)
    producer = served.producer(transactional_id="spark")
    producer.init_transactions()
    for value, commit in ((b"one", True), (b"two", False), (b"three", True)):
        producer.begin_transaction()
        served.send("transactions", [(0, 1000, None, value, ())], producer)
        (producer.commit_transaction if commit else producer.abort_transaction)()
    rows = same(served, subscribe="transactions", isolationLevel="read_committed")
    assert [bytes(row.value) for row in rows] == [b"one", b"three"]


def test_a_stream_goes_on_where_it_was(served: BesideKafka) -> None:
    served.create("stream", 2)
    options = {"subscribe": "stream", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "50"}
    for first in (0, 120):
        served.send("stream", [(row[0] % 2, *row[1:]) for row in ROWS[first : first + 120]])
        served.run_stream("kafka", options, "goes-on")
        assert served.table(served.streams / "goes-on-kafka").count() == first + 120


def test_spark_writes_to_it(served: BesideKafka) -> None:
    served.create("written", 2)
    frame = served.spark.range(200).selectExpr("CAST(id AS STRING) AS key", "CAST(id * 2 AS STRING) AS value")
    frame.write.format("kafka").option("kafka.bootstrap.servers", served.bootstrap).option("topic", "written").save()
    rows = same(served, subscribe="written")
    assert {(bytes(row.key), bytes(row.value)) for row in rows} == {(b"%d" % n, b"%d" % (2 * n)) for n in range(200)}
