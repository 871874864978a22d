"""The wanted fields of a value: paths such as `order.total`, as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

from kafkalog.errors import IllegalArgument

Wanted = dict[str, "Wanted | str | None"]
"""By name: the wanted fields below, or the word of a type, or None for all of the field with its own type."""
Fields = Mapping[str, str | None] | Iterable[str]
TYPE_WORDS: Final = ("bool", "int64", "double", "string", "json", "timestamp", "date")


def wanted_fields(fields: Fields, *, typed: bool) -> Wanted:
    """Return the tree of paths; IllegalArgument for an empty path or, where `typed`, an unknown word of a type.

    A path that is wanted with all below it includes longer paths.

    >>> wanted_fields({"order.total": "double", "order.id": None}, typed=True)
    {'order': {'total': 'double', 'id': None}}
    >>> wanted_fields(["a.b", "a", "c"], typed=False)
    {'a': None, 'c': None}
    """
    if isinstance(fields, str):
        raise IllegalArgument("fields is one string", hint=f"give a list: [{fields!r}]")
    given = fields if isinstance(fields, Mapping) else dict.fromkeys(fields)
    if not given:
        raise IllegalArgument("no field is wanted", hint="name a field, or leave out fields for all of them")
    tree: Wanted = {}
    for path, word in given.items():
        if word is not None and (not typed or word not in TYPE_WORDS):
            hint = f"the types are {', '.join(TYPE_WORDS)}" if typed else "the schema gives the types: use None"
            raise IllegalArgument(f"field {path!r} has the unknown type {word!r}", hint=hint)
        _enter(tree, path, word)
    return tree


def _enter(tree: Wanted, path: str, word: str | None) -> None:
    names = path.split(".")
    if not all(names):
        raise IllegalArgument(f"{path!r} is no path of names with dots between them")
    _put(tree, names, word)


def _put(tree: Wanted, names: list[str], word: str | None) -> None:
    *above, last = names
    for name in above:
        below = tree.setdefault(name, {})
        if not isinstance(below, dict):
            return  # all of it is wanted
        tree = below
    if not isinstance(tree.get(last, {}), dict):
        return
    tree[last] = word


def wanted_paths(paths: Iterable[Sequence[str]]) -> Wanted:
    """Return the tree of paths that are given name by name; one that is wanted with all below it includes longer ones.

    >>> wanted_paths([("a", "b"), ("c.d",), ("a", "e")])
    {'a': {'b': None, 'e': None}, 'c.d': None}
    """
    tree: Wanted = {}
    for path in paths:
        _put(tree, [*path], None)
    return tree


def dotted_paths(wanted: Wanted) -> list[str]:
    """Return the paths of a tree, with dots between the names.

    >>> dotted_paths({"a": {"b": None, "e": None}, "c": None})
    ['a.b', 'a.e', 'c']
    """
    return [
        f"{name}.{path}" if path else name
        for name, below in wanted.items()
        for path in (dotted_paths(below) if isinstance(below, dict) else [""])
    ]


def unknown_field(path: str, names: Iterable[str]) -> IllegalArgument:
    """Return the error for a wanted field that the schema does not have, with the nearest name of those it has."""
    known = list(names)
    near = get_close_matches(path.rpartition(".")[2], known, 1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"the fields are {', '.join(known[:20])}" if known else "this value has no fields"
    return IllegalArgument(f"the schema has no field {path!r}", hint=hint)
