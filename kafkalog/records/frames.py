"""Conversion of tables to pandas DataFrames, with NumPy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.errors import MissingPackage

if TYPE_CHECKING:
    import pandas
    from numpy.typing import NDArray

    from kafkalog.records.table import Table

__all__ = ["to_pandas"]


def to_pandas(table: Table) -> pandas.DataFrame:
    """Return a DataFrame with the table's columns; raise MissingPackage if pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingPackage(
            f"to_pandas() needs pandas ({error}); Polars, DuckDB and pyarrow read the table itself",
            hint="pip install 'kafkalog[pandas]'",
        ) from None
    columns = {name: _column(table[name].to_numpy(), name, pandas) for name in table.columns}
    return pandas.DataFrame(columns, columns=list(table.columns), copy=False)


def _column(values: NDArray[Any], name: str, pandas: Any) -> Any:
    if name == "timestamp":
        moments = pandas.Series(values.view("datetime64[ms]").copy())
        return moments.dt.tz_localize("UTC")
    return pandas.Series(values if values.dtype == object else values.copy())
