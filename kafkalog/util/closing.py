"""A base of what is closed at the end of a `with` block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self


class Closing:
    """A context that is the object itself and ends with its `close`."""

    __slots__ = ()

    if TYPE_CHECKING:
        def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
