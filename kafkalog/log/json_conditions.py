"""JSON without a schema in conditions: a field beside a constant has the type that the constant implies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.where.nodes import Step

if TYPE_CHECKING:
    from kafkalog.values.json_columns import JsonDecoder
    from kafkalog.where import Expression

    Path = tuple[str, ...]

_WORDS: Final = {"TEXT": "string", "BOOLEAN": "bool", "INTEGER": "double", "FLOAT": "double"}
"""The type of a JSON field beside a constant of each kind: a number may have a fraction wherever it has none."""


class Conditioned(NamedTuple):
    """The decoder of a column, and `test`, that of the same column for a condition."""

    decoder: JsonDecoder
    test: JsonDecoder

    @property
    def arrow_type(self) -> Any:
        """Type of the column that is returned."""
        return self.decoder.arrow_type

    @property
    def settled(self) -> dict[str, Any]:
        """Options that settle the column that is returned."""
        return self.decoder.settled

    def decode(self, column: Any) -> Any:
        """Decode the column that is returned."""
        return self.decoder.decode(column)

    def seen_in(self, values: Any) -> Any:
        """Return the column of `test`, from values that `decode` made without an error; None if it may differ."""
        return self.test._of_whole(self.decoder, values)


def conditioned(root: str, decoder: Any, outputs: Collection[Path], expression: Expression | None) -> Any:
    """Return a decoder of values without a schema, and a second one for a condition on fields of `outputs`."""
    words = _words(root, expression)
    if expression is None or not _overlap(outputs, words) or _has_whole(root, expression, words):
        return decoder
    return Conditioned(decoder, decoder.of_fields({".".join(path): word for path, word in words.items()}))


def json_options(
    root: str, outputs: Collection[Path], expression: Expression | None, sample: Callable[[str], list[bytes]] | None
) -> dict[str, Any]:
    """Return the options of a JSON decoder without a schema: the wanted fields, with the types that constants imply.

    `outputs` are the paths to return, `()` for whole values. A field of another kind than its constant compares as
    null. Types that no constant implies are those of a sample.
    """
    words = _words(root, expression)
    options: dict[str, Any] = {} if () in outputs else {"strict": False}
    if () not in outputs and not _has_whole(root, expression, (*outputs, *words)):
        own = {} if _overlap(outputs, words) else words
        options["fields"] = {".".join(path): word for path, word in {**dict.fromkeys(outputs), **own}.items()}
        if options["fields"] and None not in options["fields"].values():
            return options
    options["sample"] = [] if sample is None else sample(root)
    return options if options.get("fields") or "fields" not in options else {"sample": options["sample"]}


def _words(root: str, expression: Expression | None) -> dict[Path, str | None]:
    """Return the type of each path that a condition looks into; None if no constant implies it."""
    if expression is None:
        return {}
    words = {path: None if kind is None else _WORDS.get(kind.name) for path, kind in expression.hints[root].items()}
    exact = {field.path[1:] for field in expression.beyond_doubles if field.root == root}
    return {path: "int64" if word == "double" and path in exact else word for path, word in words.items()}


def _overlap(outputs: Collection[Path], words: Mapping[Path, str | None]) -> bool:
    """Return True if a field that has a word is, or is inside of, one of the outputs, or the other way round."""
    return any(
        one[: len(path)] == path[: len(one)] for one in outputs for path, word in words.items() if word is not None
    )


def _has_whole(root: str, expression: Expression | None, paths: Collection[Path]) -> bool:
    """Return True if values are decoded whole: for a condition on them, and for paths that no name of a field has."""
    is_compared = expression is not None and () in getattr(expression.names, root)
    return is_compared or any("." in name or isinstance(name, Step) for path in paths for name in path)
