"""Selection: what a typed scan makes of the columns of a log. It filters, decodes and projects one batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kafkalog.errors import InvalidRecord
from kafkalog.log.json_conditions import Conditioned
from kafkalog.records.column_reader import COLUMNS, kinds_of
from kafkalog.where import Bounds, Expression, Field
from kafkalog.where.bounds import EVERY, keys_of

if TYPE_CHECKING:
    import pyarrow

_SIZES: Final = {"key": "key_size", "value": "size"}
_LEAST_SHARE: Final = 0.25
"""Rows that pass, of all, from which on decoding every row once takes less than the fields of a condition first."""


class ColumnDecoder(Protocol):
    """A decoder of a column: those of `kafkalog.values`, or an object with the same two attributes."""

    @property
    def arrow_type(self) -> Any:
        """Type of the decoded column."""

    def decode(self, column: Any) -> Any:
        """Return `values`, `errors` (text where a row does not decode, or None) and `failed`, their number."""


class Output(NamedTuple):
    """A column of the result: a field of the expression language, or a column of the scan as it is."""

    name: str
    field: Field | None
    column: str


class Selection:
    """A filter, decoders for keys and values, and the columns to return, for record batches of a scan.

    `columns` are the columns to scan. `batch` returns the rows that pass, as `schema`. `undecodable` counts the keys
    and values that did not decode so far.
    """

    __slots__ = (
        "_decoders", "_given", "_is_lenient", "_needs_keys", "_outputs", "_rest", "_schema", "_share", "_tests",
        "_untyped", "columns", "expression", "undecodable",
    )  # fmt: skip

    def __init__(
        self,
        outputs: list[Output],
        expression: Expression | None,
        decoders: dict[str, ColumnDecoder],
        is_lenient: bool,
    ) -> None:
        tests = {root: one.test for root, one in decoders.items() if isinstance(one, Conditioned)}
        types = {root: tests.get(root, one).arrow_type for root, one in decoders.items()}
        if expression is not None:
            expression.check(types.get("key"), types.get("value"))
        self.expression = expression
        self.undecodable = 0
        self._outputs = outputs
        self._given = decoders
        self._decoders = {root: _needed(root, one, outputs, expression) for root, one in decoders.items()}
        self._tests = {**self._decoders, **tests} if tests else self._decoders
        """Decoders of the columns that the expression looks into."""
        self._is_lenient = is_lenient
        self._needs_keys = getattr(decoders.get("value"), "needs_keys", False)
        """The decoder of values takes the keys, too, as they are."""
        self._untyped, self._rest = (None, None) if expression is None else expression.split(frozenset(decoders))
        wanted = {one.column for one in outputs} | set(() if expression is None else expression.columns)
        if not self._is_lenient and decoders:
            wanted.add("offset")  # for the error
        if self._needs_keys:
            wanted.add("key")
        self.columns: tuple[str, ...] = tuple(name for name in COLUMNS if name in wanted)
        self._schema: pyarrow.Schema | None = None
        self._share = 1.0
        """Rows that passed, of all of the last batch; -1 if a condition's columns cannot be those of the result."""

    @property
    def decoders(self) -> dict[str, ColumnDecoder]:
        """Decoders of "key" and "value": a scan of another partition that is given them has the same types."""
        return dict(self._given)

    @property
    def bounds(self) -> Bounds:
        """Offsets, times and partitions outside of which no record passes."""
        return Bounds(EVERY, EVERY, EVERY) if self.expression is None else self.expression.bounds()

    @property
    def keys(self) -> frozenset[bytes] | None:
        """The only keys of records that pass; None for any."""
        if self.expression is None:
            return None
        decoder = self._decoders.get("key")
        return keys_of(self.expression.node) if decoder is None or _keeps_bytes(decoder) else None

    @property
    def keys_of_values(self) -> frozenset[bytes] | None:
        """The only keys beside which a value is looked at after the condition on other columns; None for any."""
        return None if self._untyped is None else keys_of(self._untyped.node)

    @property
    def schema(self) -> pyarrow.Schema:
        """Schema of the result."""
        if self._schema is None:
            import pyarrow

            from kafkalog._core.arrow.capsules import schema_of

            raw = pyarrow.schema(_Capsule(schema_of(kinds_of(self.columns))))
            self._schema = self.batch(pyarrow.RecordBatch.from_pylist([], raw)).schema
        return self._schema

    def mask(self, batch: pyarrow.RecordBatch) -> pyarrow.BooleanArray | None:
        """Return which rows pass, null for those that do not count; None if there is no expression.

        Rows that the untyped part of the expression rules out are not decoded.
        """
        import pyarrow.compute as pc

        mask = None if self._untyped is None else self._untyped.mask(batch)
        if self._rest is None:
            return mask
        if mask is None:
            return self._rest.mask(self._tested(batch)[0])
        chosen = pc.fill_null(mask, False)
        some = self._rest.mask(self._tested(batch.filter(chosen))[0])
        return pc.replace_with_mask(chosen, chosen, some)

    def batch(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """Return the rows of a batch of the scan that pass, with the columns of the result.

        Raises InvalidRecord, with the offset, for a key or value that does not decode, unless `on_undecodable` is
        "null".
        """
        if self._untyped is not None:
            batch = _filtered(batch, self._untyped)
        errors: dict[str, Any] = {}
        wanted = frozenset(one.field.root if one.field is not None else one.column for one in self._outputs)
        if self._rest is not None and self._tests is not self._decoders:
            at_once = self._at_once(batch)
            if at_once is not None:
                batch = at_once
                wanted -= self._roots_of(self._rest)
            else:
                batch, errors = self._tested_first(batch, wanted)
        elif self._rest is not None:
            batch, errors = self._tested(batch)
            if errors:
                batch, errors = _with_errors(batch, errors, self._rest)
            else:
                batch = _filtered(batch, self._rest)
            wanted -= self._roots_of(self._rest)
        batch, more = self._decoded(batch, wanted, self._decoders)
        return self._selected(batch, errors | more)

    def _at_once(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch | None:
        """Return the rows that pass, with the columns of the condition decoded once, as they are returned.

        None if that would take longer, if the condition sees other types, or if a row does not decode, which may be one
        that does not pass.
        """
        assert self._rest is not None
        if self._needs_keys or self._share < _LEAST_SHARE:
            return None
        whole = tested = batch
        roots = self._roots_of(self._rest)
        for root, decoder in self._decoders.items():
            if root not in roots:
                continue
            raw = batch.column(batch.schema.get_field_index(root))
            found = decoder.decode(raw)
            seen = decoder.seen_in(found.values) if isinstance(decoder, Conditioned) else found.values
            if found.failed or seen is None:
                self._share = -1.0
                return None
            whole, tested = _replaced(whole, root, found.values), _replaced(tested, root, seen)
        mask = self._rest.mask(tested)
        if len(mask):
            self._share = mask.true_count / len(mask)
        return whole if mask.true_count == len(mask) else whole.filter(mask)

    def _tested_first(
        self, batch: pyarrow.RecordBatch, wanted: frozenset[str]
    ) -> tuple[pyarrow.RecordBatch, dict[str, pyarrow.Array]]:
        """Return the rows that pass, not decoded, and the errors that the condition met in them."""
        assert self._rest is not None
        tested, errors = self._tested(batch)
        mask = self._rest.mask(tested)
        if len(mask) and self._share >= 0:
            self._share = mask.true_count / len(mask)
        errors = {root: one.filter(mask) for root, one in errors.items()}
        # what passes is decoded again, and counted then
        self.undecodable -= sum(len(one) - one.null_count for root, one in errors.items() if root in wanted)
        return batch.filter(mask), errors

    def _tested(self, batch: pyarrow.RecordBatch) -> tuple[pyarrow.RecordBatch, dict[str, pyarrow.Array]]:
        """Return the batch with the columns decoded that the typed part of the expression looks into."""
        assert self._rest is not None
        return self._decoded(batch, self._roots_of(self._rest), self._tests)

    def _roots_of(self, expression: Expression) -> frozenset[str]:
        """Return the columns to decode for an expression: values before the keys that they need are replaced."""
        roots = expression.typed_roots
        return roots | {"value"} if self._needs_keys and "key" in roots else roots

    def _decoded(
        self, batch: pyarrow.RecordBatch, roots: frozenset[str], decoders: Mapping[str, ColumnDecoder]
    ) -> tuple[pyarrow.RecordBatch, dict[str, pyarrow.Array]]:
        """Return the batch with these of its columns decoded, and the texts of errors, if there are any, by column."""
        errors = {}
        keys = (batch.column(batch.schema.get_field_index("key")),) if self._needs_keys and "value" in roots else ()
        for root, decoder in decoders.items():
            if root not in roots:
                continue
            raw = batch.column(batch.schema.get_field_index(root))
            decode: Callable[..., Any] = decoder.decode
            found = decode(raw, *keys) if root == "value" else decode(raw)
            if found.failed:
                self.undecodable += found.failed
                errors[root] = found.errors
            batch = _replaced(batch, root, found.values)
        if errors and not self._is_lenient:
            raise _undecodable(batch, errors)
        return batch, errors

    def _selected(self, batch: pyarrow.RecordBatch, errors: dict[str, Any]) -> pyarrow.RecordBatch:
        import pyarrow

        from kafkalog.where.columns import Rows

        rows = Rows(batch)
        arrays = [
            batch.column(batch.schema.get_field_index(one.column)) if one.field is None else rows.field(one.field)
            for one in self._outputs
        ]
        names = [one.name for one in self._outputs]
        if self._is_lenient:
            for root in self._decoders:
                names.append(f"{root}_error")
                found = errors.get(root)
                arrays.append(pyarrow.nulls(batch.num_rows, pyarrow.string()) if found is None else found)
        return pyarrow.RecordBatch.from_arrays(arrays, names)


def _keeps_bytes(decoder: ColumnDecoder) -> bool:
    """Return True if a decoded value equals a constant only where its bytes are those of the constant."""
    from kafkalog.values.plain import BytesDecoder, PlainDecoder

    return type(decoder) is BytesDecoder or (type(decoder) is PlainDecoder and decoder.name in ("string", "text"))


def _needed(
    root: str, decoder: ColumnDecoder, outputs: list[Output], expression: Expression | None
) -> ColumnDecoder:
    """Return a decoder of only the fields that an expression and the outputs look into."""
    only = getattr(decoder, "only", None)
    paths = paths_of(root, outputs) | (set() if expression is None else {*getattr(expression.names, root)})
    if only is None or not paths:
        return decoder
    from kafkalog.where.columns import record_path

    found = {record_path(path, decoder.arrow_type) for path in paths}
    narrowed: ColumnDecoder = decoder if () in found else only(found)
    return narrowed


def paths_of(root: str, outputs: list[Output]) -> set[tuple[str, ...]]:
    """Return the paths into a column that the outputs have."""
    return {
        () if one.field is None else one.field.path[1:]
        for one in outputs
        if one.column == root and (one.field is None or one.field.root == root)
    }


class _Capsule:
    """An Arrow schema capsule as an object that pyarrow reads."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __arrow_c_schema__(self) -> object:
        return self._capsule


def _replaced(batch: pyarrow.RecordBatch, root: str, values: pyarrow.Array) -> pyarrow.RecordBatch:
    """Return a batch with decoded keys or values in place of the bytes, whose sizes it keeps."""
    import pyarrow.compute as pc

    at = batch.schema.get_field_index(root)
    raw = batch.column(at)
    batch = batch.set_column(at, root, values)
    return batch if _SIZES[root] in batch.schema.names else batch.append_column(_SIZES[root], pc.binary_length(raw))


def _filtered(batch: pyarrow.RecordBatch, expression: Expression) -> pyarrow.RecordBatch:
    mask = expression.mask(batch)
    return batch if mask.true_count == len(mask) else batch.filter(mask)


def _with_errors(
    batch: pyarrow.RecordBatch, errors: dict[str, Any], expression: Expression
) -> tuple[pyarrow.RecordBatch, dict[str, Any]]:
    mask = expression.mask(batch)
    return batch.filter(mask), {root: one.filter(mask) for root, one in errors.items()}


def _undecodable(batch: pyarrow.RecordBatch, errors: dict[str, pyarrow.StringArray]) -> InvalidRecord:
    """Return the error of the first row that has one."""
    import pyarrow.compute as pc

    row, root = min((pc.index(pc.is_valid(texts), True).as_py(), root) for root, texts in errors.items())
    offset = batch.column(batch.schema.get_field_index("offset"))[row].as_py()
    return InvalidRecord(
        f"the {root} does not decode: {errors[root][row].as_py()}", offset=offset,
        hint="on_undecodable='null' gives null, and the reason in a column of its own",
    )  # fmt: skip
