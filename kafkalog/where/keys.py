"""Keys that follow from an expression: those that a record has for which it is true."""

from __future__ import annotations

from kafkalog.where.nodes import And, Compare, In, Literal, Node, Not, Or

KEY: tuple[str, ...] = ("key",)


def keys_of(node: Node, wanted: bool = True) -> frozenset[bytes] | None:
    """Return the only keys of the records for which `node` is true, with `wanted` False for which it is false.

    Keys are the bytes of whole keys, in which texts are UTF-8. None is any key, and a record without one.

    >>> from kafkalog import where
    >>> expression = where.parse("key in ('a', x'62') and offset > 5 and not key == 'a'")
    >>> sorted(keys_of(expression.node)), keys_of(where.parse("key == 'a' or size > 5").node)
    ([b'a', b'b'], None)
    """
    if isinstance(node, Not):
        return keys_of(node.part, not wanted)
    if isinstance(node, (And, Or)):
        parts = [keys_of(part, wanted) for part in node.parts]
        known = [one for one in parts if one is not None]
        if isinstance(node, And) == wanted:
            return frozenset.intersection(*known) if known else None
        return frozenset.union(*known) if len(known) == len(parts) else None
    if isinstance(node, Compare) and node.left.path == KEY and node.operator == ("==" if wanted else "!="):
        return None if not isinstance(node.right, Literal) else _keys([node.right])
    if isinstance(node, In) and node.field.path == KEY and wanted:
        return _keys(node.values)
    return None


def _keys(literals: list[Literal] | tuple[Literal, ...]) -> frozenset[bytes] | None:
    """Return the keys that equal one of these constants; a null equals none."""
    found = set()
    for literal in literals:
        value = literal.value
        if isinstance(value, (str, bytes)):
            found.add(value.encode() if isinstance(value, str) else value)
        elif value is not None:
            return None
    return frozenset(found)
