"""What a call says to a keyword that it does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name that `name` most looks like; None where none is near."""
    from difflib import get_close_matches

    found = get_close_matches(name, list(known), n=1, cutoff=0.6)
    part = [one for one in known if len(name) > 2 and (name in one or one in name)]
    return found[0] if found else part[0] if part else None


def unknown_keyword(call: str, given: Mapping[str, object], known: tuple[str, ...]) -> TypeError:
    """The error for keywords that `call` does not take: it names the nearest one, and those there are.

    A call that takes `**unknown` only to raise this costs its other callers some 20 ns.
    """
    name = next(iter(given))
    nearest = near(name, known)
    fix = f"did you mean {nearest}? It takes " if nearest else "it takes "
    return TypeError(f"{call}() takes no keyword {name!r}: {fix}{', '.join(known)}")
