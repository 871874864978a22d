"""Errors for unknown keyword arguments, with a suggestion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

_APPENDS: Final = frozenset({"append", "append_bytes", "append_arrow", "replicate"})


def closest_match(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`; None if none is similar."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    part = [one for one in known if len(name) > 2 and (name in one or one in name)]
    return found[0] if found else part[0] if part else None


def not_for_reading(call: str, name: str, known: tuple[str, ...]) -> TypeError:
    """Return the error for a keyword that `call`, which takes `known`, does not take in mode "r"."""
    nearest = closest_match(name, known)
    fix = f"did you mean {nearest}?" if nearest else "settings are for mode 'a'"
    return TypeError(f"{call}() with mode 'r' takes no keyword {name!r}: {fix}")


def unknown_keyword(call: str, given: Mapping[str, object], known: tuple[str, ...]) -> TypeError:
    """Return the error for keywords that `call` does not take: it names a similar one and lists all.

    For an append with `sync` it names the calls that take it.

    A parameter `**unknown` that exists only to raise this costs each call some 20 ns.
    """
    name = next(iter(given))
    nearest = closest_match(name, known)
    fix = f"did you mean {nearest}? It takes " if nearest else "it takes "
    if name == "sync" and call in _APPENDS:
        fix = "pass it to kafkalog.open(..., sync=True) or log.writer(sync=True). It takes "
    return TypeError(f"{call}() takes no keyword {name!r}: {fix}{', '.join(known)}")
