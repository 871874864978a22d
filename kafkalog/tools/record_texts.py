"""The words the dump tool prints for keys and values: the reference's decoders (format.md section 13, A10 to A12).

A RecordText turns key, value and offset of a record into the text of its key and of its payload; None prints neither
label nor text. What a decoder does not understand is told in the text, in the reference's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kafkalog.errors import InvalidRecord
from kafkalog.records.internal import (
    UnknownRecordType,
    control_message,
    coordinator_record,
    enum_name,
    metadata_record,
    with_consumer_protocol,
)
from kafkalog.records.json_text import json_text
from kafkalog.records.message import UNDERFLOW, MessageError
from kafkalog.records.schema import Message, Schema
from kafkalog.tools import decoders
from kafkalog.tools.remote_log_text import remote_log_text

Bytes = bytes | None
RecordText = Callable[[Bytes, Bytes, int], tuple[str | None, str | None]]

DELETED: Final = "<DELETE>"
GROUP_METADATA: Final = 2
_LABELS: Final = {
    2: "LeaderChange: ",
    3: "SnapshotHeader ",
    4: "SnapshotFooter ",
    5: "KRaftVersion ",
    6: "KRaftVoters ",
}


def offsets_text() -> RecordText:
    """--offsets-decoder: records of `__consumer_offsets`."""
    from kafkalog.records.schemas import groups

    return partial(_coordinator_text, groups.KEYS, groups.VALUES, {GROUP_METADATA: with_consumer_protocol})


def transaction_log_text() -> RecordText:
    """--transaction-log-decoder: records of `__transaction_state`."""
    from kafkalog.records.schemas import transactions

    return partial(_coordinator_text, transactions.KEYS, transactions.VALUES, {})


def share_state_text() -> RecordText:
    """--share-group-state-decoder: records of `__share_group_state`."""
    from kafkalog.records.schemas import share_state

    return partial(_coordinator_text, share_state.KEYS, share_state.VALUES, {})


def cluster_metadata_text() -> RecordText:
    """--cluster-metadata-decoder: records of `__cluster_metadata` and of snapshots; keys are not printed."""
    from kafkalog.records.schemas.metadata import RECORDS

    return partial(_metadata_text, RECORDS)


def remote_log_metadata_text() -> RecordText:
    """--remote-log-metadata-decoder: records of `__remote_log_metadata`; keys are not printed."""
    from kafkalog.records.schemas.remote_log import RECORDS

    return partial(_remote_text, RECORDS)


def decoder_text(key: str | None, value: str | None, schemas: str | None = None) -> RecordText | None:
    """--key-decoder-class and --value-decoder-class: names as `tools.decoders.decoder` takes them, None for text.

    None where both are text: the renderer prints that by itself. IllegalArgument for a name that means nothing.
    """
    of_key = decoders.text if key is None else decoders.decoder(key, schemas=schemas)
    of_value = decoders.text if value is None else decoders.decoder(value, schemas=schemas)
    if of_key is decoders.text and of_value is decoders.text:
        return None

    def words(key: Bytes, value: Bytes, offset: int) -> tuple[str | None, str | None]:
        return _decoded(of_key, key, "key"), _decoded(of_value, value, "value")

    return words


def _decoded(decode: decoders.Decoder, data: Bytes, what: str) -> str | None:
    return None if data is None else decoders.shown(decoders.decoded(decode, data, what))


def _coordinator_text(
    keys: Mapping[int, Schema],
    values: Mapping[int, Schema],
    better: Mapping[int, Callable[[Message], Message]],
    key: Bytes,
    value: Bytes,
    offset: int,
) -> tuple[str | None, str | None]:
    if key is None:
        raise InvalidRecord("the record has no key, which says what it is", offset=offset)
    try:
        record = coordinator_record(key, value, keys, values)
    except UnknownRecordType as error:
        return f"Unknown record type {error.number} at offset {offset}, skipping.", None
    except MessageError as error:
        return f"Error at offset {offset}, skipping. {error.message}", None
    shown: dict[str, Any] = {"type": str(record.type), "data": record.key}
    if record.value is None:
        return json_text(shown), DELETED
    data = better[record.type](record.value) if record.type in better else record.value
    return json_text(shown), json_text({"version": str(record.version), "data": data})


def _metadata_text(
    records: Mapping[int, Schema], key: Bytes, value: Bytes, offset: int
) -> tuple[str | None, str | None]:
    try:
        record = metadata_record(value or b"", records)
    except MessageError as error:
        return None, f"Error at {offset}, skipping. {error.message}"
    return None, json_text({"type": enum_name(record.name), "version": record.version, "data": record.data})


def _remote_text(records: Mapping[int, Schema], key: Bytes, value: Bytes, offset: int) -> tuple[str | None, str | None]:
    try:
        if value is None:
            raise MessageError(_NO_VALUE)
        return None, remote_log_text(metadata_record(value, records))
    except MessageError as error:
        return None, f"Error at offset {offset}, skipping. {error.message}"


_NO_VALUE: Final = (
    'Cannot invoke "java.nio.ByteBuffer.remaining()" because the return value of '
    '"org.apache.kafka.common.record.internal.Record.value()" is null'
)


def control_text(key: Bytes, value: Bytes) -> str:
    """The words of a KRaft control record (A3): `LeaderChange: {...}`; InvalidRecord for a malformed value."""
    kind = int.from_bytes((key or b"")[2:4], "big", signed=True)
    try:
        return _LABELS[kind] + json_text(control_message(kind, value))
    except MessageError as error:
        what = "it ends inside a field" if error.message == UNDERFLOW else error.message
        raise InvalidRecord(f"the control record cannot be read: {what}") from None
