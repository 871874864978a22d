"""Selection: what a typed scan makes of the columns of a log. It filters, decodes and projects one batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kafkalog.errors import IllegalArgument, InvalidRecord, KafkalogError
from kafkalog.log.json_conditions import Conditioned, conditioned, json_options
from kafkalog.log.scan import SCHEMA_OPTIONS
from kafkalog.log.typeless import NoJsonDecoder, NothingDecoder
from kafkalog.records.column_reader import COLUMNS, kinds_of
from kafkalog.util.packages import needed
from kafkalog.where import Bounds, Expression, Field, parse, parse_field
from kafkalog.where.bounds import EVERY
from kafkalog.where.fields import COLUMN_OF, UnknownField
from kafkalog.where.keys import keys_of

if TYPE_CHECKING:
    import pyarrow

OF_ONE_TYPE: Final = ("schema", "subject", "message", "framing")
"""Keywords for the types of a column; where keys and values are decoded, they are those of the values."""
_SIZES: Final = {"key": "key_size", "value": "size"}
Projection = str | Iterable[str] | Mapping[str, str]


class ColumnDecoder(Protocol):
    """A decoder of a column: those of `kafkalog.values`, or an object with the same two attributes."""

    @property
    def arrow_type(self) -> Any:
        """Type of the decoded column."""

    def decode(self, column: Any) -> Any:
        """Return `values`, `errors` (text where a row does not decode, or None) and `failed`, their number."""


class _Output(NamedTuple):
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
        "_decoders", "_given", "_is_lenient", "_needs_keys", "_outputs", "_rest", "_schema", "_tests", "_untyped",
        "columns", "expression", "undecodable",
    )  # fmt: skip

    def __init__(
        self,
        outputs: list[_Output],
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
            tested, errors = self._tested(batch)
            mask = self._rest.mask(tested)
            batch, errors = batch.filter(mask), {root: one.filter(mask) for root, one in errors.items()}
            # what passes is decoded again, and counted then
            self.undecodable -= sum(len(one) - one.null_count for root, one in errors.items() if root in wanted)
        elif self._rest is not None:
            batch, errors = self._tested(batch)
            if errors:
                batch, errors = _with_errors(batch, errors, self._rest)
            else:
                batch = _filtered(batch, self._rest)
            wanted -= self._roots_of(self._rest)
        batch, more = self._decoded(batch, wanted, self._decoders)
        return self._selected(batch, errors | more)

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
            import pyarrow.compute as pc

            at = batch.schema.get_field_index(root)
            raw = batch.column(at)
            decode: Callable[..., Any] = decoder.decode
            found = decode(raw, *keys) if root == "value" else decode(raw)
            if found.failed:
                self.undecodable += found.failed
                errors[root] = found.errors
            batch = batch.set_column(at, root, found.values)
            if _SIZES[root] not in batch.schema.names:
                batch = batch.append_column(_SIZES[root], pc.binary_length(raw))
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
    root: str, decoder: ColumnDecoder, outputs: list[_Output], expression: Expression | None
) -> ColumnDecoder:
    """Return a decoder of only the fields that an expression and the outputs look into."""
    only = getattr(decoder, "only", None)
    paths = _paths(root, outputs) | (set() if expression is None else {*getattr(expression.names, root)})
    if only is None or not paths:
        return decoder
    from kafkalog.where.columns import record_path

    found = {record_path(path, decoder.arrow_type) for path in paths}
    narrowed: ColumnDecoder = decoder if () in found else only(found)
    return narrowed


def _paths(root: str, outputs: list[_Output]) -> set[tuple[str, ...]]:
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


def selection_of(
    columns: Iterable[str] | None,
    given: Mapping[str, Any],
    sample: Callable[[str], list[bytes]] | None = None,
    topic: str | None = None,
) -> Selection:
    """Return the selection of a scan's typed keywords (`TYPED_OPTIONS`); raise IllegalArgument for wrong ones.

    `sample` returns the first keys or values, for types that nothing else gives. Schemas of a registry are those of the
    subjects of `topic`, unless others are named.
    """
    lenient = given.get("on_undecodable") or "raise"
    if lenient not in ("null", "raise"):
        raise IllegalArgument(f"on_undecodable is {lenient!r}", hint="give 'null' or 'raise'")
    project = given.get("project")
    if project is not None and columns is not None:
        raise IllegalArgument("both columns and project are given", hint="name all wanted fields in project")
    if given.get("on_undecodable") is not None and given.get("key") is None and given.get("value") is None:
        raise IllegalArgument("on_undecodable is given, but nothing is decoded", hint="give value= or key= as well")
    expression = _expression(given.get("where"))
    outputs = _columns(columns) if project is None else _projected(project)
    needed("pyarrow", "typed scans need pyarrow ({})", "arrow")
    decoders = _decoders(outputs, expression, given, sample, topic, lenient == "null")
    try:
        selection = Selection(outputs, expression, decoders, lenient == "null")
        for one in outputs:
            if one.field is not None:
                _check_path(one.field, decoders)
    except UnknownField as error:
        subject = given.get("subject") or (None if topic is None else f"{topic}-{error.root}")
        _add_schema_hint(error, decoders.get(error.root), subject)
        raise
    return selection


def _add_schema_hint(error: UnknownField, decoder: ColumnDecoder | None, subject: str | None) -> None:
    """Add the latest schema that has the unknown field to the hint, if there is one."""
    find = getattr(decoder, "_schemas_with", None)
    try:
        number = None if find is None else next(find(error.names, subject), None)
    except KafkalogError:  # a registry that is down, or a schema that cannot be read: no hint
        return
    if number is not None:
        error.hint = f"{error.hint}; schema {number} has it: give schema={number} (--schema {number})"


def select_matching(
    typed: Mapping[str, Any], where: str | Expression, sample: Callable[[str], list[bytes]], topic: str | None
) -> Selection:
    """Return the selection of the records for which a condition is true, with the decoders of `typed` for it.

    Keys and values that do not decode are null.
    """
    has_decoders = typed.get("key") is not None or typed.get("value") is not None
    lenient = {"on_undecodable": "null"} if has_decoders else {}
    return selection_of(["offset"], {**typed, **lenient, "where": where}, sample, topic)


def _check_path(field: Field, decoders: Mapping[str, ColumnDecoder]) -> None:
    import pyarrow

    from kafkalog.where.columns import field_type

    key, value = (decoders[root].arrow_type if root in decoders else pyarrow.binary() for root in ("key", "value"))
    field_type(field, key, value)


def _expression(where: object) -> Expression | None:
    if where is None or isinstance(where, Expression):
        return where
    return parse(where)  # type: ignore[arg-type]  # raises TypeError for what is no text


def _columns(columns: Iterable[str] | None) -> list[_Output]:
    names = [COLUMNS[kind] for kind in kinds_of(columns)]
    return [_Output(name, None, name) for name in names]


def _projected(project: Projection) -> list[_Output]:
    """Return the columns of a projection: paths by their texts, or by the names of a mapping."""
    if isinstance(project, str):
        raise TypeError(f"project is a str: give a list, [{project!r}], or a dict of names and paths")
    pairs = [*project.items()] if isinstance(project, Mapping) else [(text, text) for text in project]
    if not pairs:
        raise IllegalArgument("no field is given", hint="project is a list such as ['offset', 'value.order.total']")
    fields = [(name, parse_field(text)) for name, text in pairs]
    if len({name for name, _ in fields}) < len(fields):
        raise IllegalArgument("a field is given twice", hint="give a dict of names and paths")
    return [_Output(name, field, COLUMN_OF[field.root]) for name, field in fields]


def _decoders(
    outputs: list[_Output],
    expression: Expression | None,
    given: Mapping[str, Any],
    sample: Callable[[str], list[bytes]] | None,
    topic: str | None,
    is_lenient: bool,
) -> dict[str, ColumnDecoder]:
    found: dict[str, ColumnDecoder] = {}
    options = {name: given[name] for name in SCHEMA_OPTIONS if given.get(name) is not None}
    used = {one.column if one.field is None else one.field.root for one in outputs}
    used |= set() if expression is None else expression.typed_roots
    names = [root for root in ("value", "key") if isinstance(given.get(root), str)]
    if options and not names:
        raise IllegalArgument(f"{next(iter(options))} is given, but nothing is decoded by it", hint="give value='avro'")
    for root in ("key", "value"):
        asked = given.get(root)
        if asked is None:
            continue
        if not isinstance(asked, str):
            if not hasattr(asked, "decode") or not hasattr(asked, "arrow_type"):
                raise TypeError(f"{root} is a {type(asked).__name__}: give a decoder's name, such as 'avro'")
            if root in used:
                found[root] = asked
            continue
        if root not in used:
            continue
        own = options_of(root, asked, names, options)
        if {"schemas", "registry"} & own.keys() and not {"schema", "subject"} & own.keys():
            found[root] = _registered(asked, own, None if topic is None else f"{topic}-{root}", root, sample)
            continue
        is_sampled = asked == "json" and not {"schema", "subject"} & own.keys()
        paths = _paths(root, outputs)
        if is_sampled:
            own |= json_options(root, paths, expression, sample)
        if own.get("sample") == []:
            found[root] = NothingDecoder()
            continue
        from kafkalog import values
        from kafkalog.values.decoding import NoJsonValue

        try:
            found[root] = values.decoder(asked, **own)
        except NoJsonValue:
            if not is_lenient:
                raise
            found[root] = NoJsonDecoder()
            continue
        if is_sampled:
            found[root] = conditioned(root, found[root], paths, expression)
    return found


def options_of(root: str, decoder: str, names: list[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the decoder of a column takes, of those for all of `names`, the columns that are decoded.

    One schema is that of the value, if both are decoded; a decoder without a schema takes none of a registry.
    """
    from kafkalog.values.named import INTERNAL, WITH_SCHEMA

    if root != names[0]:
        options = {name: one for name, one in options.items() if name not in OF_ONE_TYPE}
    if len(names) > 1 and decoder not in WITH_SCHEMA:
        options = {name: one for name, one in options.items() if name in OF_ONE_TYPE}
    return {**options, **({"part": "key"} if root == "key" and decoder in INTERNAL else {})}


def _registered(
    name: str, own: dict[str, Any], subject: str | None, root: str, sample: Callable[[str], list[bytes]] | None
) -> ColumnDecoder:
    """Return a decoder with the subject's latest schema, or that of the first value if there is no such subject."""
    import pyarrow

    from kafkalog import values
    from kafkalog.values.schemas.directory import SchemaDirectory

    has_subjects = "schemas" not in own or not isinstance(values.schema_source(own["schemas"]), SchemaDirectory)
    if subject is not None and has_subjects:
        with suppress(values.UnknownSchema):
            return values.decoder(name, subject=subject, **own)
    first = [] if sample is None else sample(root)
    if not first:
        return NothingDecoder()
    decoder = values.decoder(name, **own)
    decoder.decode(pyarrow.array(first, pyarrow.binary()))
    return decoder
