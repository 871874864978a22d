"""Decoders of columns whose sample had no value that shows a type: they return nulls."""

from __future__ import annotations

from typing import Any

from kafkalog.errors import IllegalState


class NothingDecoder:
    """The decoder of a column whose sample had only nulls."""

    @property
    def arrow_type(self) -> Any:
        """Arrow's null."""
        import pyarrow

        return pyarrow.null()

    def decode(self, column: Any) -> Any:
        """Return nulls; raise IllegalState for a value, which the sample should have had."""
        import pyarrow

        if column.null_count < len(column):
            raise IllegalState(
                "no value was read to take the types from, and here is one", hint="scan again, or give a schema"
            )

        from kafkalog.values import Decoded

        return Decoded(pyarrow.nulls(len(column)), None, 0)


class NoJsonDecoder:
    """The decoder of a column of text that is no JSON: nulls, each with its reason."""

    def __init__(self) -> None:
        from kafkalog import values

        self._any = values.decoder("json", schema=True)
        self.arrow_type = NothingDecoder().arrow_type

    def decode(self, column: Any) -> Any:
        """Return nulls with errors; JSON behind the sample has no type, and so an error too."""
        import pyarrow
        import pyarrow.compute as pc

        from kafkalog.values import Decoded

        found = self._any.decode(column)
        errors = pyarrow.nulls(len(column), pyarrow.string()) if found.errors is None else found.errors
        reason = pyarrow.scalar("the first values are no JSON, so there are no types for it")
        typeless = pc.if_else(pc.is_valid(found.values), reason, pyarrow.scalar(None, pyarrow.string()))
        errors = pc.coalesce(errors, typeless)
        failed = len(errors) - errors.null_count
        return Decoded(pyarrow.nulls(len(column)), errors if failed else None, failed)
