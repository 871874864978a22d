"""Making a selection of the typed keywords of a scan: its condition, the columns to return, and the decoders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.log.json_conditions import json_decoder
from kafkalog.log.scan import SCHEMA_OPTIONS
from kafkalog.log.selection import ColumnDecoder, Output, Selection, paths_of
from kafkalog.log.typeless import NoJsonDecoder, NothingDecoder
from kafkalog.records.column_reader import COLUMNS, kinds_of
from kafkalog.util.packages import needed
from kafkalog.where import Expression, Field, parse, parse_field
from kafkalog.where.fields import COLUMN_OF, UnknownField

OF_ONE_TYPE: Final = ("schema", "subject", "message", "framing")
"""Keywords for the types of a column; where keys and values are decoded, they are those of the values."""
Projection = str | Iterable[str] | Mapping[str, str]


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


def _columns(columns: Iterable[str] | None) -> list[Output]:
    names = [COLUMNS[kind] for kind in kinds_of(columns)]
    return [Output(name, None, name) for name in names]


def _projected(project: Projection) -> list[Output]:
    """Return the columns of a projection: paths by their texts, or by the names of a mapping."""
    if isinstance(project, str):
        raise TypeError(f"project is a str: give a list, [{project!r}], or a dict of names and paths")
    pairs = [*project.items()] if isinstance(project, Mapping) else [(text, text) for text in project]
    if not pairs:
        raise IllegalArgument("no field is given", hint="project is a list such as ['offset', 'value.order.total']")
    fields = [(_checked_name(name), parse_field(text)) for name, text in pairs]
    if len({name for name, _ in fields}) < len(fields):
        raise IllegalArgument("a field is given twice", hint="give a dict of names and paths")
    return [Output(name, field, COLUMN_OF[field.root]) for name, field in fields]


def _checked_name(name: object) -> str:
    """Return the name of a column; raise IllegalArgument if Arrow has no room for it."""
    if not isinstance(name, str):
        raise TypeError(f"the name of a column is a {type(name).__name__}: give a str")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise IllegalArgument(f"{ascii(name)[:80]} is no name of a column", hint="use characters of UTF-8") from None
    return name


def _decoders(
    outputs: list[Output],
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
        from kafkalog import values
        from kafkalog.values.decoding import NoJsonValue

        if asked != "json" or {"schema", "subject"} & own.keys():
            found[root] = values.decoder(asked, **own)
            continue
        try:
            found[root] = json_decoder(root, paths_of(root, outputs), expression, sample, own)
        except NoJsonValue:
            if not is_lenient:
                raise
            found[root] = NoJsonDecoder()
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
