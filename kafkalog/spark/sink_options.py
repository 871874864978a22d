"""The sink's options as one value: parsed and checked once, before any file is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafkalog.errors import IllegalArgument
from kafkalog.landing.commit import LOCK_WAIT_MS, STAGING_AGE_MS
from kafkalog.landing.staging import Job
from kafkalog.manager.topics import MAX_PARTITIONS
from kafkalog.records.packing import PLAIN, Compression, parse_compression
from kafkalog.spark.option_table import SINK_OPTIONS, SOURCE_OPTIONS, checked_names
from kafkalog.spark.options import duration_ms, local_path
from kafkalog.storage.names import validate_topic

_NO_CODEC: Final = ("none", "uncompressed")
_MAX_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of a write; the fields are those of `option_table.SINK_OPTIONS`."""

    path: str
    topic: str | None = None
    partitions: int = 1
    compression: Compression = PLAIN
    job_id: str | None = None
    lock_wait_ms: int = LOCK_WAIT_MS
    staging_age_ms: int = STAGING_AGE_MS

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse the options of a write; names in any case.

        Raises IllegalArgument, with the fix, for an unknown name and an invalid value; InvalidTopic,
        UnsupportedCompression. Options of Kafka clients (`kafka.*`) are ignored with a warning.
        """
        given = checked_names(options, SINK_OPTIONS, SOURCE_OPTIONS)
        topic, job_id = given.get("topic"), given.get("jobid")
        if topic is not None:
            validate_topic(topic)
        if job_id is not None:
            Job.batch(job_id)
        codec = given.get("compression", "none").strip().lower()
        return cls(
            path=_path(given),
            topic=topic,
            partitions=_partitions(given.get("partitions", "1")),
            compression=PLAIN if codec in _NO_CODEC else parse_compression(codec),
            job_id=job_id,
            lock_wait_ms=duration_ms(given["lockwait"], "lockWait") if "lockwait" in given else LOCK_WAIT_MS,
            staging_age_ms=duration_ms(given["stagingage"], "stagingAge") if "stagingage" in given else STAGING_AGE_MS,
        )


def _path(given: Mapping[str, str]) -> str:
    if not given.get("path"):
        raise IllegalArgument("no path is given", hint="name the data directory: save('/var/lib/kafka/data')")
    return local_path(given["path"])


def _partitions(text: str) -> int:
    digits = text.strip()
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS
    if not (is_number and 1 <= int(digits) <= MAX_PARTITIONS):
        raise IllegalArgument(
            f"partitions is {text[:80]!r}", hint="give the number of partitions of a new topic"
        )
    return int(digits)
