"""JSON without a schema in conditions: a field beside a constant has the type that the constant implies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.log.typeless import NothingDecoder
from kafkalog.where.nodes import Step

if TYPE_CHECKING:
    from kafkalog.values.json_columns import JsonDecoder
    from kafkalog.values.json_types import JsonType
    from kafkalog.where import Expression

    Path = tuple[str, ...]

_WORDS: Final = {
    "TEXT": "string", "BYTES": "string", "BOOLEAN": "bool", "INTEGER": "double", "FLOAT": "double", "NULL": "json",
}  # fmt: skip
"""The type of a JSON field beside a constant of each kind: a number may have a fraction wherever it has none.

A field of which it is only asked if it is null is text as it is, which is null for nothing else.
"""


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


def conditioned(root: str, decoder: JsonDecoder, expression: Expression | None) -> JsonDecoder | Conditioned:
    """Return a decoder of values without a schema, and a second one if a condition looks into them."""
    words = _words(root, expression)
    return Conditioned(decoder, decoder._of_type(_test_type(decoder._known(), words))) if words else decoder


def json_decoder(
    root: str,
    outputs: Collection[Path],
    expression: Expression | None,
    sample: Callable[[str], list[bytes]] | None,
    options: Mapping[str, Any],
) -> JsonDecoder | Conditioned | NothingDecoder:
    """Return the decoder of a JSON column without a schema, and a second one if a condition looks into it too.

    `outputs` are the paths to return, `()` for whole values; `options` are the decoder's. A field of a condition has
    the type that its constants imply, and another kind compares as null. The other types are those of a sample;
    NoJsonValue if they are needed, and it has no JSON.
    """
    from kafkalog import values
    from kafkalog.values.json_columns import JsonDecoder
    from kafkalog.values.json_types import NO_FIELDS, has_path, select
    from kafkalog.values.wanted import wanted_paths

    words = _words(root, expression)
    if not outputs and words and None not in words.values() and words.get((), "json") == "json":
        typeless = values.decoder("json", **options)
        assert isinstance(typeless, JsonDecoder)
        return typeless._of_type(_test_type(NO_FIELDS, words))
    found = [] if sample is None else sample(root)
    if not found:
        return NothingDecoder()
    whole = values.decoder("json", **options, sample=found)
    assert isinstance(whole, JsonDecoder)
    decoder, type = whole, whole._known()
    test = whole._of_type(_test_type(type, words)) if words else None
    if test is not None and not outputs:
        return test
    if () not in outputs:
        paths = [_names(path, type) for path in outputs]
        # where the sample has another kind on the way, that is no error
        strict = all(has_path(type, path) for path in paths)
        some = type if [] in paths else select(type, wanted_paths(paths), strict=False)
        decoder = whole._of_type(some, strict=strict)
    return decoder if test is None else Conditioned(decoder, test)


def _words(root: str, expression: Expression | None) -> dict[Path, str | None]:
    """Return the type of each path that a condition looks into; None if no constant implies it."""
    if expression is None:
        return {}
    words = {path: None if kind is None else _WORDS.get(kind.name) for path, kind in expression.hints[root].items()}
    exact = {field.path[1:] for field in expression.beyond_doubles if field.root == root}
    return {path: "int64" if word == "double" and path in exact else word for path, word in words.items()}


def _test_type(sample: JsonType, words: Mapping[Path, str | None]) -> JsonType:
    """Return the type of the fields of a condition: those that its constants imply, the others as in a sample."""
    from kafkalog.values.json_types import NO_FIELDS, JsonType, select, with_type
    from kafkalog.values.wanted import wanted_paths

    of_whole = words.get((), "json")
    typeless = [_names(path, sample) for path, word in words.items() if path and word is None]
    if of_whole != "json":  # an error, and not null, where they are of another kind
        is_wider = sample.kind == "int64" and of_whole == "double"
        type = JsonType("double") if is_wider else sample
    elif [] in typeless:
        type = sample
    else:
        type = select(sample, wanted_paths(typeless), strict=False) if typeless else NO_FIELDS
    for path in sorted(words, key=len):
        word = words[path]
        if word is not None and (path or word == "json") and not (word == "json" and _is_shown(path, words)):
            type = with_type(type, path, word)
    return type


def _is_shown(path: Path, words: Mapping[Path, str | None]) -> bool:
    """Return True if a field is null where another one of the condition, in it or of the same list, shows it."""
    here = _anywhere(path)
    return any(
        len(other) > len(path) or word != "json"
        for other, word in words.items()
        if other != path and _anywhere(other)[: len(path)] == here
    )


def _anywhere(path: Path) -> Path:
    """Return a path with the step to each element in place of those to one."""
    return tuple(Step(None) if isinstance(name, Step) else name for name in path)


def _names(path: Path, sample: JsonType) -> list[str]:
    """Return a path without its steps into lists; it ends before the first one if the sample has no such list."""
    from kafkalog.values.json_types import has_path

    names = [name for name in path if not isinstance(name, Step)]
    return names if has_path(sample, names) else [*takewhile(lambda name: not isinstance(name, Step), path)]
