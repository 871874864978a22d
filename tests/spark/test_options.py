"""The source's options: what is taken, what is refused, and what the refusal says."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog.errors import IllegalArgument, InvalidTopic
from kafkalog.spark.limits import EARLIEST, LATEST, Offsets, Timestamp, Timestamps
from kafkalog.spark.option_table import SOURCE_OPTIONS
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.subscriptions import Assign, Subscribe, SubscribePattern
from kafkalog.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def parse(streaming: bool = False, **given: str) -> SourceOptions:
    return SourceOptions.parse({"path": "/data", "subscribe": "a", **given}, streaming=streaming)


def subscribed(**given: str) -> SourceOptions:
    return SourceOptions.parse({"path": "/data", **given}, streaming=False)


def test_what_is_left_out_is_as_in_the_kafka_source() -> None:
    options = parse()
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert options.subscription == Subscribe(("a",)) and options.paths == ("/data",)
    assert options.fail_on_data_loss and options.isolation == "read_uncommitted" and options.verify_crc
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert options.min_partitions is options.max_records_per_partition is options.max_offsets_per_trigger is None
    assert parse(streaming=True).starting == LATEST


def test_names_are_taken_in_any_case() -> None:
    assert parse(STARTINGOFFSETS="Latest", streaming=True).starting == LATEST
    assert parse(failondataloss="FALSE").fail_on_data_loss is False


def test_times_come_before_offsets_by_time_before_offsets() -> None:
    all_three = {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"a":{"0":6}}', "startingOffsets": "earliest"}
    assert parse(**all_three).starting == Timestamp(5, or_latest=False)
    del all_three["startingTimestamp"]
    assert parse(**all_three).starting == Timestamps({A0: 6}, or_latest=False)
    assert parse(endingTimestamp="7", endingOffsets="latest").ending == Timestamp(7, or_latest=True)
    assert parse(endingOffsetsByTimestamp='{"a":{"0":6}}').ending == Timestamps({A0: 6}, or_latest=True)
    strategy = {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "LATEST"}
    assert parse(**strategy).starting == Timestamp(5, or_latest=True)


def test_offsets_as_json() -> None:
    options = parse(startingOffsets='{"a":{"0":23,"1":-2}}', endingOffsets='{"a":{"0":-1,"1":9}}')
    assert options.starting == Offsets({A0: 23, A1: -2}) and options.ending == Offsets({A0: -1, A1: 9})


def test_the_three_subscriptions() -> None:
    assert subscribed(subscribe=" a , b,a").subscription == Subscribe(("a", "b"))
    assert subscribed(subscribePattern="or.*").subscription == SubscribePattern("or.*")
    assert subscribed(assign='{"a":[1,0]}').subscription == Assign((A1, A0))
    assert subscribed().subscription is None


def test_columns_and_headers() -> None:
    assert parse(columns="offset, VALUE").columns == ("offset", "value")
    assert parse(includeHeaders="true").columns[-1] == "headers" and len(parse(includeHeaders="true").columns) == 8
    assert parse(columns="headers").columns == ("headers",)


def test_paths() -> None:
    required_paths = SourceOptions.parse({"paths": '["/a", "file:///b%20c"]', "subscribe": "a"}, streaming=False)
    assert required_paths.paths == ("/a", "/b c")
    assert parse(path="file:/x").paths == ("/x",) and parse(path="/with,comma").paths == ("/with,comma",)
    assert parse(path="file://localhost/x").paths == parse(path="FILE:///x").paths == ("/x",)
    assert parse(path="/a:b//[x").paths == ("/a:b//[x",) and parse(path="//[x").paths == ("//[x",)


def test_options_of_a_kafka_client_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kafkalog.spark"):
        parse(**{"kafka.bootstrap.servers": "h:1", "groupIdPrefix": "g"})
    assert "kafka.bootstrap.servers" in caplog.text and "groupIdPrefix" not in caplog.text


def test_the_sink_s_options_and_what_spark_adds_are_passed_over() -> None:
    assert parse(topic="x") == parse()
    added = {"location": "file:/data", "provider": "kafkalog", "owner": "root", "option.subscribe": "a"}
    assert parse(**added) == parse()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingOffset'.*did you mean startingOffsets"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "assign and subscribe are given"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": "a/b"}, "not allowed"),
        ({"startingOffsets": "latest"}, "can't be latest for a batch"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, r"startingOffsets for a-0 can't be latest \(-1\)"),
        ({"endingOffsets": "earliest"}, "can't be earliest for a batch"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, r"endingOffsets for a-0 can't be earliest \(-2\)"),
        ({"startingOffsets": "{"}, r"startingOffsets is '\{'.*give JSON"),
        ({"startingOffsets": '{"a":[1]}'}, "a has no offsets by partition"),
        ({"startingOffsets": '{"a":{"0":1.5}}'}, "1.5, which is not valid"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "True, which is not valid"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "-3, which is not valid"),
        ({"startingOffsets": '{"a":{"x":1}}'}, "'x' is not a partition number"),
        ({"startingOffsets": '{"a":{"0":1,"0":2}}'}, "twice"),
        ({"startingOffsets": "{}"}, "names no partition"),
        ({"startingOffsets": '{"a/b":{"0":1}}'}, "not allowed"),
        ({"endingTimestamp": "yesterday"}, "endingTimestamp is 'yesterday'.*milliseconds"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1}}'}, "-1, which is not valid"),
        ({"startingOffsetsByTimestampStrategy": "newest"}, "give error or latest"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no'.*true or false"),
        ({"minPartitions": "0"}, "minPartitions is '0'.*above 0"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition is 'many'"),
        ({"isolationLevel": "read_comitted"}, "did you mean read_committed"),
        ({"onDamage": "fail"}, "onDamage is 'fail'.*give raise or skip"),
        ({"corruptBatches": "ignore"}, "give fail or skip"),
        ({"onDamage": "raise", "corruptBatches": "skip"}, "onDamage is 'raise' and corruptBatches.*is 'skip'"),
        ({"onDamage": "skip", "corruptBatches": "fail"}, "onDamage is 'skip' and corruptBatches.*give onDamage alone"),
        ({"columns": "offset,valu"}, "did you mean value"),
        ({"columns": "offset,offset"}, "twice"),
        ({"columns": ","}, "no column"),
        ({"path": ""}, "no path is given"),
        ({"path": "/d", "corruptReport": "/d/report"}, "reports .* cannot be stored in the data directory /d"),
        ({"path": "s3://bucket/logs"}, "is on s3.*mount it"),
        ({"path": "file://data/logs"}, "not the URI of a local path"),  # it names a host
        ({"path": "file:///data/a#1"}, "not the URI.*%23 for .* #"),
        ({"paths": "/a,/b"}, "not a JSON list of paths"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "more than maxOffsetsPerTrigger"),
    ],
)
def test_what_is_refused_and_how_to_mend_it(given: dict[str, str], message: str) -> None:
    with pytest.raises((IllegalArgument, InvalidTopic), match=message):
        parse(**given)


@pytest.mark.parametrize(
    ("name", "value"),
    [("assign", ""), ("assign", "["), ("assign", "{"), ("subscribePattern", ""), ("subscribePattern", "[")],
)
def test_a_subscription_to_nothing_is_refused(name: str, value: str) -> None:
    with pytest.raises(IllegalArgument, match=name):
        subscribed(**{name: value})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(IllegalArgument, match=f"{name} does not apply to streams"):
        parse(streaming=True, **{name: "latest"})


def test_every_option_of_the_table_is_one_that_is_parsed() -> None:
    values = {
        "path": "/d", "paths": '["/d"]', "subscribe": "a", "subscribePattern": "a", "assign": '{"a":[0]}',
        "startingOffsets": "earliest", "startingTimestamp": "1", "startingOffsetsByTimestamp": '{"a":{"0":1}}',
        "startingOffsetsByTimestampStrategy": "latest", "endingOffsets": '{"a":{"0":1}}', "endingTimestamp": "1",
        "endingOffsetsByTimestamp": '{"a":{"0":1}}', "failOnDataLoss": "false", "minPartitions": "3",
        "maxRecordsPerPartition": "3", "includeHeaders": "true", "maxOffsetsPerTrigger": "3",
        "minOffsetsPerTrigger": "3", "maxTriggerDelay": "1m", "groupIdPrefix": "x", "columns": "offset",
        "where": "offset > 1", "value": "json", "key": "json", "schema": "{}", "schemas": "/s", "registry": "http://r",
        "subject": "s", "message": "m", "framing": "raw", "onUndecodable": "null",
        "isolationLevel": "read_committed", "verifyCrc": "false", "onDamage": "skip", "corruptReport": "/r",
        "pushFilters": "never", "maxPartitionBytes": "5", "corruptBatches": "skip", "tiered": "s3://bucket",
        "timeRanges": "/t",
    }  # fmt: skip
    assert set(values) == {option.name for option in SOURCE_OPTIONS}
    without_effect = {"groupIdPrefix", "startingOffsetsByTimestampStrategy"}
    plain = {"path": "/x", "startingOffsets": '{"a":{"0":3}}'}
    typed = {"schema", "schemas", "registry", "subject", "message", "framing", "onUndecodable"}
    for name, value in values.items():
        before = {**plain, "value": "avro"} if name in typed else plain
        changed = SourceOptions.parse({**before, name: value}, streaming=False)
        assert (changed == SourceOptions.parse(before, streaming=False)) == (name in without_effect), name


@pytest.mark.parametrize(("older", "name"), [("fail", "raise"), ("skip", "skip")])
def test_older_name_of_on_damage_means_the_same(older: str, name: str) -> None:
    assert parse(corruptBatches=older) == parse(onDamage=name) == parse(corruptBatches=older, onDamage=name)


def test_planning_a_read_imports_nothing_of_spark() -> None:
    code = "import sys, kafkalog.spark.batch_plan, kafkalog.spark.range_scan, kafkalog.spark.row_schema"
    code += "; assert not {'pyspark', 'py4j', 'pyarrow', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_a_schema_is_its_text_or_its_id() -> None:
    assert dict(parse(value="avro", schemas="/schemas", schema="7").decoding)["schema"] == 7
    assert dict(parse(value="avro", schema='"long"').decoding)["schema"] == '"long"'
