"""Polars data frames of scans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.errors import MissingPackage

if TYPE_CHECKING:
    import polars


def polars_frame(scan: Any) -> polars.DataFrame:
    """Return a Polars DataFrame of a scan's rows; raise MissingPackage if Polars is not installed.

    Polars gets a table, since it would replace the errors of a stream by its own.
    """
    try:
        import polars
    except ImportError as error:
        raise MissingPackage(f"to_polars() needs polars ({error})", hint="pip install 'kafkalog[polars]'") from None
    return polars.DataFrame(scan.table())
