"""Options of `format("kafkalog")` as data: names, defaults, uses, meanings."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.util.keywords import closest_match

__all__ = ["SINK_OPTIONS", "SOURCE_OPTIONS", "Option", "checked_names"]

_LOG: Final = logging.getLogger("kafkalog.spark")
BATCH: Final = "batch"
STREAM: Final = "stream"
BOTH: Final = "batch, stream"


class Option(NamedTuple):
    """An option: its name, the default in words, the reads or writes it applies to, its meaning.

    `kafka` is True if Spark's Kafka source or sink has it with the same meaning.
    """

    name: str
    default: str
    used_by: str
    meaning: str
    kafka: bool = True


SOURCE_OPTIONS: Final = (
    Option("path", "none", BOTH, "a data directory, or a partition's directory; several by `load([a, b])`", False),
    Option("paths", "none", BOTH, "several of them as a JSON list: what Spark makes of `load([a, b])`", False),
    Option("subscribe", "none", BOTH, "topics, with commas between them"),
    Option("subscribePattern", "none", BOTH,
           "a regular expression that is found in a topic's name; `^orders$` means the whole of it"),
    Option("assign", "none", BOTH, 'partitions as JSON: `{"a":[0,1],"b":[2]}`'),
    Option("startingOffsets", "earliest; latest for streams", BOTH,
           'where to start: `earliest`, `latest` (streams only), or JSON `{"a":{"0":23,"1":-2}}`, -2 the earliest, '
           "-1 the latest; every partition is named"),
    Option("startingTimestamp", "none", BOTH, "start at the first record at or after this time (ms)"),
    Option("startingOffsetsByTimestamp", "none", BOTH, 'the same for each partition: `{"a":{"0":1700000000000}}`'),
    Option("startingOffsetsByTimestampStrategy", "error", BOTH,
           "where no record is that young: `error`, or `latest`: start at the end"),
    Option("endingOffsets", "latest", BATCH, "where to end: `latest`, or JSON as for `startingOffsets`, -1 the latest"),
    Option("endingTimestamp", "none", BATCH, "end before the first record at or after this time (ms)"),
    Option("endingOffsetsByTimestamp", "none", BATCH, "the same for each partition"),
    Option("failOnDataLoss", "true", BOTH,
           "fail where records that were to be read are gone; `false`: warn and go on with what is there"),
    Option("minPartitions", "none", BOTH, "at least so many Spark partitions; the largest are divided"),
    Option("maxRecordsPerPartition", "none", BOTH, "at most so many offsets in a Spark partition"),
    Option("includeHeaders", "false", BOTH, "give the column `headers` too"),
    Option("maxOffsetsPerTrigger", "none", STREAM, "at most so many offsets in a micro-batch"),
    Option("minOffsetsPerTrigger", "none", STREAM, "wait for so many offsets before a micro-batch"),
    Option("maxTriggerDelay", "15m", STREAM, "the longest that `minOffsetsPerTrigger` lets a record wait"),
    Option("groupIdPrefix", "none", BOTH, "taken and not used: there is no consumer group"),
    Option("columns", "all", BOTH, "the columns wanted, with commas between them; only these are decoded", False),
    Option("isolationLevel", "read_uncommitted", BOTH,
           "`read_committed` leaves aborted records out and ends at the last stable offset; `high_watermark` ends "
           "there", False),
    Option("verifyCrc", "true", BOTH, "check each batch's checksum; `false` trusts it", False),
    Option("onDamage", "raise", BOTH,
           "`raise` with file and position, or `skip`: leave damaged batches out, count and report them", False),
    Option("corruptBatches", "none", BOTH, "the older name of `onDamage`, with `fail` for `raise`", False),
    Option("corruptReport", "none", BOTH,
           "a directory for what `skip` left out: a file of JSON lines for each task that met damage", False),
    Option("pushFilters", "auto", BATCH,
           "`auto` takes filters on topic, partition, offset and timestamp where Spark hands them over; `never` "
           "leaves all to Spark", False),
    Option("maxPartitionBytes", "134217728", BOTH, "about so many bytes of log in a Spark partition", False),
)  # fmt: skip
"""Options of the source."""

SINK_OPTIONS: Final = (
    Option("path", "none", BOTH, "the data directory; where only its last part is missing it is made", False),
    Option("topic", "none", BOTH, "the topic of all rows; it wins over the column `topic`"),
    Option("includeHeaders", "false", BOTH, "taken and not used: a column `headers` is written where there is one"),
    Option("partitions", "1", BOTH, "the number of partitions that a missing topic is made with", False),
    Option("compression", "none", BOTH,
           "`gzip`, `snappy`, `lz4` or `zstd`, with a level where there are some: `zstd:9`; a topic's own "
           "`compression.type` wins", False),
    Option("jobId", "random", BATCH,
           "the id of the write: one that landed under this id is not written again, however often it is run", False),
    Option("checkpointLocation", "none", STREAM, "Spark's own: where the query keeps what it has done"),
    Option("lockWait", "1m", BOTH, "how long a commit waits for the lock of the data directory", False),
    Option("stagingAge", "1d", BOTH, "staged files that are older are swept: longer than any job takes", False),
)  # fmt: skip
"""Options of the sink."""

_KAFKA_PREFIX: Final = "kafka."
_OF_TABLES: Final = frozenset({
    "location", "provider", "owner", "comment", "collation", "external", "is_managed_location", "table_type",
})  # fmt: skip
_OPTION_PREFIX: Final = "option."
"""Prefix with which Spark repeats each option among a table's options; `_OF_TABLES` are a table's properties."""


def checked_names(given: Mapping[str, str], own: Iterable[Option], others: Iterable[Option]) -> dict[str, str]:
    """Return the given options that are in `own`, by their names in lower case.

    Options in `others` are ignored: a table in SQL has one set of options for reading and writing. Options of a Kafka
    client (`kafka.*`) have no effect, and a warning says so. Raises IllegalArgument, with the closest match, for any
    other name.
    """
    names = {option.name.lower(): option.name for option in own}
    passed = {option.name.lower() for option in others}
    found: dict[str, str] = {}
    ignored: list[str] = []
    for name, value in given.items():
        key = name.lower()
        if key in names:
            found[key] = value
        elif key.startswith(_KAFKA_PREFIX):
            ignored.append(name)
        elif key not in passed and key not in _OF_TABLES and not key.startswith(_OPTION_PREFIX):
            nearest = closest_match(key, names)
            hint = f"did you mean {names[nearest]}? " if nearest else ""
            raise IllegalArgument(
                f"there is no option {name!r}", hint=f"{hint}options are {', '.join(names.values())}"
            )
    if ignored:
        _LOG.warning(
            "options of a Kafka client mean nothing to kafkalog, which reads files: %s", ", ".join(sorted(ignored))
        )
    return found
