"""Decoders of the dump tool for keys and values, as in the reference (format.md section 13, A10 to A12).

A RecordReader turns key, value and offset of a record into the output for its key and its payload: a str as it is, a
dict as JSON, nothing (not even a label) for None. A record that cannot be decoded becomes a str with the reference's
error text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from kafkalog.errors import InvalidRecord
from kafkalog.records.internal import (
    UnknownRecordType,
    coordinator_record,
    enum_name,
    metadata_record,
    with_consumer_protocol,
)
from kafkalog.records.message import MessageError
from kafkalog.records.schema import Message, Schema
from kafkalog.tools.decoders.named import decoder
from kafkalog.tools.decoders.plain import Decoder, decode_value, text
from kafkalog.tools.dump.remote_log_text import remote_log_text

Bytes = bytes | None
Parts = tuple[object, object]
RecordReader = Callable[[Bytes, Bytes, int], Parts]

DELETED: Final = "<DELETE>"
GROUP_METADATA: Final = 2
_NO_VALUE: Final = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)


def offsets_reader() -> RecordReader:
    """Return the reader of --offsets-decoder: records of `__consumer_offsets`."""
    from kafkalog.records.schemas import groups

    return partial(_coordinator, groups.KEYS, groups.VALUES, {GROUP_METADATA: with_consumer_protocol})


def transaction_log_reader() -> RecordReader:
    """Return the reader of --transaction-log-decoder: records of `__transaction_state`."""
    from kafkalog.records.schemas import transactions

    return partial(_coordinator, transactions.KEYS, transactions.VALUES, {})


def share_state_reader() -> RecordReader:
    """Return the reader of --share-group-state-decoder: records of `__share_group_state`."""
    from kafkalog.records.schemas import share_state

    return partial(_coordinator, share_state.KEYS, share_state.VALUES, {})


def cluster_metadata_reader() -> RecordReader:
    """Return the reader of --cluster-metadata-decoder: records of `__cluster_metadata` and snapshots, without keys."""
    from kafkalog.records.schemas.metadata import RECORDS

    return partial(_metadata, RECORDS)


def remote_log_metadata_reader() -> RecordReader:
    """Return the reader of --remote-log-metadata-decoder: records of `__remote_log_metadata`, without keys."""
    from kafkalog.records.schemas.remote_log import RECORDS

    return partial(_remote, RECORDS)


INTERNAL_READERS: Final[dict[str, Callable[[], RecordReader]]] = {
    "group": offsets_reader,
    "transaction": transaction_log_reader,
    "share-state": share_state_reader,
    "cluster": cluster_metadata_reader,
    "remote-log": remote_log_metadata_reader,
}
"""Readers by the names that the decoders of columns have (`kafkalog.values`)."""
_TOPICS: Final = {
    "__consumer_offsets": "group",
    "__transaction_state": "transaction",
    "__share_group_state": "share-state",
    "__cluster_metadata": "cluster",
    "__remote_log_metadata": "remote-log",
}


def internal_reader(topic: str) -> RecordReader | None:
    """Return the reader of one of Kafka's own topics; None for any other topic."""
    name = _TOPICS.get(topic)
    return None if name is None else INTERNAL_READERS[name]()


def decoder_reader(key: str | None, value: str | None, schemas: str | None = None) -> RecordReader | None:
    """Return the reader of --key-decoder-class and --value-decoder-class, with names as for `decoder`, None for text.

    None if both are text: the renderer prints that by itself. IllegalArgument for an unknown name.
    """
    of_key = text if key is None else decoder(key, schemas=schemas)
    of_value = text if value is None else decoder(value, schemas=schemas)
    if of_key is text and of_value is text:
        return None

    def read(key: Bytes, value: Bytes, offset: int) -> Parts:
        return _decoded(of_key, key, "key"), _decoded(of_value, value, "value")

    return read


def _decoded(decode: Decoder, data: Bytes, what: str) -> object:
    if data is None:
        return None
    value = decode_value(decode, data, what)
    return "null" if value is None else value


def _coordinator(
    keys: Mapping[int, Schema],
    values: Mapping[int, Schema],
    conversions: Mapping[int, Callable[[Message], Message]],
    key: Bytes,
    value: Bytes,
    offset: int,
) -> Parts:
    if key is None:
        raise InvalidRecord("the record has no key, so its type is unknown", offset=offset)
    try:
        record = coordinator_record(key, value, keys, values)
    except UnknownRecordType as error:
        return f"Unknown record type {error.number} at offset {offset}, skipping.", None
    except MessageError as error:
        return f"Error at offset {offset}, skipping. {error.message}", None
    key_data: dict[str, object] = {"type": str(record.type), "data": record.key}
    if record.value is None:
        return key_data, DELETED
    data = conversions[record.type](record.value) if record.type in conversions else record.value
    return key_data, {"version": str(record.version), "data": data}


def _metadata(records: Mapping[int, Schema], key: Bytes, value: Bytes, offset: int) -> Parts:
    try:
        record = metadata_record(value or b"", records)
    except MessageError as error:
        return None, f"Error at {offset}, skipping. {error.message}"
    return None, {"type": enum_name(record.name), "version": record.version, "data": record.data}


def _remote(records: Mapping[int, Schema], key: Bytes, value: Bytes, offset: int) -> Parts:
    try:
        if value is None:
            raise MessageError(_NO_VALUE)
        return None, remote_log_text(metadata_record(value, records))
    except MessageError as error:
        return None, f"Error at offset {offset}, skipping. {error.message}"
