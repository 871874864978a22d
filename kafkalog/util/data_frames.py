"""pandas and Polars data frames of tables and scans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.errors import InvalidRecord, MissingPackage
from kafkalog.util.packages import needed
from kafkalog.util.python_rows import NO_OBJECT

if TYPE_CHECKING:
    import pandas
    import polars


def pandas_frame(table: Any) -> pandas.DataFrame:
    """Return a pandas DataFrame of a pyarrow Table; raise MissingPackage if pandas is not installed.

    InvalidRecord for a date, or a time within a struct, beyond Python's calendar.

    Whole numbers beside nulls stay whole: columns of them are pandas' Int64 and the like. pyarrow makes them floats,
    which do not hold numbers beyond 2^53.
    """
    import pyarrow

    try:
        frame = table.to_pandas(integer_object_nulls=True)
    except ModuleNotFoundError as error:
        raise MissingPackage(f"to_pandas() needs pandas ({error})", hint="pip install 'kafkalog[pandas]'") from None
    except NO_OBJECT as error:
        raise InvalidRecord(
            f"a record has a time that pandas has no object for: {error}",
            hint="to_polars() and table() return any time",
        ) from None
    for name, column in zip(table.column_names, table.columns, strict=True):
        if column.null_count and pyarrow.types.is_integer(column.type):
            frame[name] = frame[name].astype(str(column.type).replace("uint", "UInt").replace("int", "Int"))
    return frame


def polars_frame(scan: Any) -> polars.DataFrame:
    """Return a Polars DataFrame of a scan's rows; raise MissingPackage if Polars is not installed.

    Polars gets a table, since it would replace the errors of a stream by its own.
    """
    found: polars.DataFrame = needed("polars", "to_polars() needs polars ({})", "polars").DataFrame(scan.table())
    return found
