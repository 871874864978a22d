"""Polars data frames of Arrow streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.errors import MissingPackage

if TYPE_CHECKING:
    import polars


def polars_frame(stream: Any) -> polars.DataFrame:
    """Return a Polars DataFrame of an Arrow stream; raise MissingPackage if Polars is not installed."""
    try:
        import polars
    except ImportError as error:
        raise MissingPackage(f"to_polars() needs polars ({error})", hint="pip install 'kafkalog[polars]'") from None
    return polars.DataFrame(stream)
