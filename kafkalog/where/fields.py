"""The fields of a record that an expression can name, and the columns that they come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafkalog.errors import IllegalArgument
from kafkalog.where.nodes import Field, Step

COLUMN_OF: Final = {
    "offset": "offset", "time": "timestamp", "key": "key", "value": "value", "header": "headers",
    "partition": "partition", "topic": "topic", "size": "value", "key_size": "key", "timestampType": "timestampType",
}  # fmt: skip
"""The column that each field is computed from."""
FIELDS: Final = tuple(COLUMN_OF)
_OTHER_NAMES: Final = {"timestamp": "time", "value_size": "size", "headers": "header"}
_WITH_PATH: Final = frozenset({"key", "value", "header"})


def checked_field(path: tuple[str, ...], position: int) -> Field:
    """Return the field of a path; raise IllegalArgument, with the nearest name, for one that there is not."""
    root = _OTHER_NAMES.get(path[0], path[0])
    if root not in COLUMN_OF:
        raise _unknown_field(path, position)
    rest = path[1:]
    if rest and root not in _WITH_PATH:
        raise IllegalArgument(
            f"{root} has no parts, at character {position + 1} of the expression",
            hint="paths go into key and value, and header.NAME is a header",
        )
    if root == "header":
        if any(isinstance(one, Step) for one in rest):
            raise IllegalArgument(
                f"a header is no list, at character {position + 1} of the expression",
                hint='of headers with one name the last counts; write header."a[0]" for a header with such a name',
            )
        if not rest:
            raise IllegalArgument(
                f"header needs a name, at character {position + 1} of the expression", hint="write header.NAME"
            )
        rest = (".".join(rest),)  # a header has no parts, and names with dots are common
    return Field((root, *rest), position)


def _unknown_field(path: tuple[str, ...], position: int) -> IllegalArgument:
    """Return the error for a path that begins with no field; a frame that raised it would keep it alive."""
    error = unknown_name(path[0], FIELDS, f"there is no field {path[0]!r}", position, "fields are")
    if not str(error.hint).startswith("did you mean"):
        error.hint = f"{error.hint}; a field of a decoded value is {Field(('value', *path), position)}"
    return error


class UnknownField(IllegalArgument):
    """A path names a field that the type of its record does not have.

    `root` is "key" or "value", and `names` lead from there to the field.
    """

    root: str = ""
    names: tuple[str, ...] = ()


def unknown_name(name: str, known: Iterable[str], what: str, position: int, listed: str) -> IllegalArgument:
    """Return the error for a name that is not known: with its position and the nearest known one."""
    from difflib import get_close_matches

    names = list(known)
    by_lower = {one.lower(): one for one in reversed(names)}
    near = get_close_matches(name.lower(), by_lower, n=1)
    meant = f"did you mean {by_lower[near[0]]}? " if near else ""
    few = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return IllegalArgument(f"{what}, at character {position + 1} of the expression", hint=f"{meant}{listed} {few}")
