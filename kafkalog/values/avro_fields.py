"""Some fields of an Avro schema: a reader's schema without the others, which decoding then skips."""

from __future__ import annotations

from dataclasses import replace

from kafkalog.values.avro_columns import branches_of, joined
from kafkalog.values.avro_schema import AvroType
from kafkalog.values.wanted import Wanted, unknown_field


def with_fields(schema: AvroType, wanted: Wanted) -> AvroType:
    """Return a reader's schema with only the wanted fields, in the schema's order.

    Paths lead into optional records and the items of arrays. Maps, and unions of several types, are wanted whole.
    IllegalArgument for a field that the schema does not have.

    >>> from kafkalog.values.avro_schema import parse_avro
    >>> fields = [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}]
    >>> order = parse_avro({"type": "record", "name": "Order", "fields": fields})
    >>> [one.name for one in with_fields(order, {"note": None}).fields]
    ['note']
    """
    return _Chooser().choose(schema, wanted, "")


class _Chooser:
    def __init__(self) -> None:
        self._count = 0

    def choose(self, kind: AvroType, wanted: Wanted | str | None, path: str) -> AvroType:
        if not isinstance(wanted, dict):
            return kind
        if kind.kind == "array":
            item = self.choose(kind.parts[0], wanted, path)
            return replace(kind, parts=[item])
        if kind.kind == "union" and len(branches_of(kind)) == 1:
            return replace(kind, parts=[one if one.kind == "null" else self.choose(one, wanted, path)
                                        for one in kind.parts])  # fmt: skip
        if kind.kind != "record":
            raise unknown_field(joined(path, next(iter(wanted))), ())
        names = [one.name for one in kind.fields]
        for name in wanted:
            if name not in names:
                raise unknown_field(joined(path, name), names)
        self._count += 1
        fields = [replace(one, type=self.choose(one.type, wanted[one.name], joined(path, one.name)))
                  for one in kind.fields if one.name in wanted]  # fmt: skip
        # the whole type may stand elsewhere in the schema, and a name is that of one type
        return replace(kind, name=f"{kind.name}_{self._count}", aliases=(kind.name, *kind.aliases), fields=fields)
