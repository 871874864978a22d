"""Records of Kafka's own topics as columns: a struct with a field for each type of record, of which one has a value.

These topics are small, so each record is a Python object on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.records.internal import coordinator_record, metadata_record
from kafkalog.records.message import MessageError
from kafkalog.values.decoding import Decoded, ValueDecoder, import_pyarrow, value_column

if TYPE_CHECKING:
    import pyarrow

    from kafkalog.records.schema import Field

COORDINATORS: Final = {"group": "groups", "transaction": "transactions", "share-state": "share_state"}
METADATA: Final = {"cluster": "metadata", "remote-log": "remote_log"}
PARTS: Final = ("value", "key")
_TYPES: Final = {
    "bool": "bool_", "i8": "int8", "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32", "i64": "int64",
    "f64": "float64", "string": "string", "bytes": "binary", "uuid": "string",
}  # fmt: skip


class InternalDecoder(ValueDecoder):
    """Keys or values of an internal topic, by its name in `kafkalog.decoders`.

    "group" is `__consumer_offsets`, "transaction" `__transaction_state`, "share-state" `__share_group_state`, "cluster"
    `__cluster_metadata`, "remote-log" `__remote_log_metadata`. The column is a struct: each of its fields is a type of
    record, and has a value where the record is of that type. `part` is "value" or "key"; "cluster" and "remote-log"
    have values alone. The type of a coordinator's value is in its key, so `decode` takes both columns (`needs_keys`).

    >>> import pyarrow
    >>> keys = pyarrow.array([bytes.fromhex("0001 0003 617070 0006 6f7264657273 00000000")])
    >>> values = pyarrow.array([bytes.fromhex("0003 0000000000000002 ffffffff 0000 0000000000000000")])
    >>> InternalDecoder("group").decode(values, keys).values[0]["OffsetCommitValue"]["offset"]
    <pyarrow.Int64Scalar: 2>
    >>> decoder = InternalDecoder("transaction", part="key")
    >>> decoder.name, decoder.part, str(decoder.arrow_type), decoder.needs_keys, decoder.settled
    ('transaction', 'key', 'struct<TransactionLogKey: struct<transactionalId: string>>', False, {})
    """

    def __init__(self, name: str, *, part: str = "value") -> None:
        if part not in PARTS or (part == "key" and name in METADATA):
            raise IllegalArgument(f"the decoder {name} has no part {part!r}", hint="the parts are value and key")
        self.name = name
        self.part = part
        self.needs_keys = name in COORDINATORS and part == "value"
        module = import_module(f"kafkalog.records.schemas.{(COORDINATORS | METADATA)[name]}")
        self._read: Callable[[bytes | None, bytes], dict[str, Any]]
        if name in METADATA:
            self._schemas = module.RECORDS
            self._read = self._metadata
        else:
            self._schemas = module.KEYS if part == "key" else module.VALUES
            self._keys, self._values = module.KEYS, module.VALUES
            self._read = self._coordinator
        self._type: pyarrow.DataType | None = None

    @property
    def arrow_type(self) -> pyarrow.DataType:
        """Type of the decoded column: a struct with a field for each type of record, each a struct of its fields."""
        if self._type is None:
            pa = import_pyarrow()
            fields = [(schema.name, _struct(schema.fields, pa)) for schema in self._schemas.values()]
            self._type = pa.struct(fields)
        return self._type

    def decode(self, column: pyarrow.Array, keys: pyarrow.Array | None = None) -> Decoded:
        """Decode a column; `keys` are the records' keys, which the values of coordinators need.

        A record that cannot be parsed is an error of its row, with the reference's text. IllegalArgument for missing
        keys, or keys of another length.
        """
        pa = import_pyarrow()
        value_column(column)
        column = _as_binary(column, pa)
        if keys is None and self.needs_keys:
            raise IllegalArgument(f"the decoder {self.name} needs the keys: they say what the values are")
        if keys is not None and len(keys) != len(column):
            raise IllegalArgument(f"{len(keys)} keys for {len(column)} values")
        rows: list[dict[str, Any] | None] = []
        texts: list[str | None] = []
        others: Iterable[bytes | None] = [None] * len(column) if keys is None else _as_binary(keys, pa).to_pylist()
        for key, value in zip(others, column.to_pylist(), strict=True):
            try:
                rows.append(None if value is None else self._read(key, value))
                texts.append(None)
            except MessageError as error:
                rows.append(None)
                texts.append(error.message)
        failed = sum(text is not None for text in texts)
        return Decoded(pa.array(rows, self.arrow_type), pa.array(texts, pa.string()) if failed else None, failed)

    def _metadata(self, key: bytes | None, value: bytes) -> dict[str, Any]:
        found = metadata_record(value, self._schemas)
        return {found.name: found.data}

    def _coordinator(self, key: bytes | None, value: bytes) -> dict[str, Any]:
        if self.part == "key":
            found = coordinator_record(value, None, self._keys, self._values)
            return {self._schemas[found.type].name: found.key}
        if key is None:
            raise MessageError("its key is null, so its type is not known")
        found = coordinator_record(key, value, self._keys, self._values)
        return {self._schemas[found.type].name: found.value}


def _as_binary(column: Any, pa: Any) -> Any:
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return column.cast(pa.large_binary()) if any(check(column.type) for check in texts) else column


def _struct(fields: Iterable[Field], pa: Any) -> pyarrow.DataType:
    """Return the struct of a message's fields, those of all its versions."""
    found = {field.name: _type(field, pa) for field in fields}
    return pa.struct(list(found.items()))


def _type(field: Field, pa: Any) -> pyarrow.DataType:
    inner = _struct(field.fields, pa) if field.fields else getattr(pa, _TYPES[field.type])()
    return pa.list_(inner) if field.array else inner
