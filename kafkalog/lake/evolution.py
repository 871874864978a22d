"""The columns of a topic in types of tables, and the changes of a table's columns that make them fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.lake.failures import TableMismatch

if TYPE_CHECKING:
    import pyarrow

_NEW_TABLE: Final = "name fitting columns with project, or sync into another table"
_OWN_TABLE: Final = (
    "columns are added, and int widened to long, float to double, decimals to more digits: for another change "
    "sync into another table"
)


class Evolution(NamedTuple):
    """The columns of a table after a change, and the paths that it adds and widens."""

    schema: pyarrow.Schema
    added: tuple[str, ...]
    widened: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.widened)


def lake_schema(schema: pyarrow.Schema, *, has_time_of_day: bool = True) -> pyarrow.Schema:
    """Return the schema of a table for rows with `schema`; a column of nulls alone has no type yet and is left out."""
    import pyarrow as pa

    return pa.schema(
        pa.field(one.name, lake_type(one.type, has_time_of_day), one.nullable)
        for one in schema
        if not pa.types.is_null(one.type)
    )


def lake_type(given: pyarrow.DataType, has_time_of_day: bool = True) -> pyarrow.DataType:
    """Return the type of a table's column that holds every value of an Arrow type.

    >>> import pyarrow
    >>> lake_type(pyarrow.uint32()), lake_type(pyarrow.timestamp("ms", "UTC"))
    (DataType(int64), TimestampType(timestamp[us, tz=UTC]))
    """
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(given):
        return lake_type(given.value_type, has_time_of_day)
    if types.is_struct(given):
        return pa.struct([pa.field(one.name, lake_type(one.type, has_time_of_day)) for one in given])
    if types.is_list(given) or types.is_large_list(given) or types.is_fixed_size_list(given):
        return pa.list_(pa.field("element", lake_type(given.value_type, has_time_of_day)))
    if types.is_map(given):
        return pa.map_(lake_type(given.key_type, has_time_of_day), lake_type(given.item_type, has_time_of_day))
    return _number_type(given) or _time_type(given, has_time_of_day) or _bytes_type(given)


def _number_type(given: pyarrow.DataType) -> pyarrow.DataType | None:
    import pyarrow as pa

    types = pa.types
    if types.is_uint64(given):
        return pa.decimal128(20, 0)
    if types.is_int64(given) or types.is_uint32(given):
        return pa.int64()
    if types.is_integer(given):
        return pa.int32()
    if types.is_float16(given) or types.is_float32(given):
        return pa.float32()
    return given if types.is_float64(given) or types.is_decimal128(given) or types.is_boolean(given) else None


def _time_type(given: pyarrow.DataType, has_time_of_day: bool) -> pyarrow.DataType | None:
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(given):  # nanoseconds would lose digits
        return pa.int64() if given.unit == "ns" else pa.timestamp("us", None if given.tz is None else "UTC")
    if types.is_time(given):
        if has_time_of_day and given.unit != "ns":
            return pa.time64("us")
        return pa.int32() if types.is_time32(given) else pa.int64()
    if types.is_duration(given):
        return pa.int64()
    return pa.date32() if types.is_date(given) else None


def _bytes_type(given: pyarrow.DataType) -> pyarrow.DataType:
    import pyarrow as pa

    types = pa.types
    if types.is_string(given) or types.is_large_string(given) or types.is_string_view(given):
        return pa.string()
    if types.is_null(given):
        return pa.string()  # a field that no value has: text is what JSON of an unknown kind becomes
    return pa.binary()


def plan_evolution(table: str, have: pyarrow.Schema, wanted: pyarrow.Schema, *, is_own: bool) -> Evolution:
    """Return the change that lets a table with the columns `have` take rows with the columns `wanted`.

    A table that no sync made (`is_own` is false) is not changed. Raises TableMismatch, with all columns that do not
    fit: unknown ones of such a table, types that cannot be widened, and required columns that the rows do not have.
    """
    import pyarrow as pa

    plan = _Plan()
    fields = plan.fields([*have], [*wanted], "")
    wrong = list(plan.wrong)
    if not is_own:
        wrong += [(path, "is not a column of the table") for path in plan.added]
        wrong += [(path, "has a wider type than the table's") for path in plan.widened]
    names = set(wanted.names)
    wrong += [(one.name, "is required by the table") for one in have if not one.nullable and one.name not in names]
    if wrong:
        raise TableMismatch.of(table, wrong, _OWN_TABLE if is_own else _NEW_TABLE)
    return Evolution(pa.schema(fields), tuple(plan.added), tuple(plan.widened))


class _Plan:
    """The changes found so far, as paths."""

    def __init__(self) -> None:
        self.added: list[str] = []
        self.widened: list[str] = []
        self.wrong: list[tuple[str, str]] = []

    def fields(self, have: list[pyarrow.Field], wanted: list[pyarrow.Field], before: str) -> list[pyarrow.Field]:
        """Return the fields of both, those of the table first."""
        by_name = {one.name: one for one in wanted}
        found = [
            one.with_type(self.merged(one.type, by_name[one.name].type, before + one.name))
            if one.name in by_name
            else one
            for one in have
        ]
        known = {one.name for one in have}
        new = [one.with_nullable(True) for one in wanted if one.name not in known]
        self.added += [before + one.name for one in new]
        return found + new

    def merged(self, have: pyarrow.DataType, wanted: pyarrow.DataType, path: str) -> pyarrow.DataType:
        """Return the type that holds the values of both; record the path if it is a wider one, or if there is none."""
        import pyarrow as pa

        types = pa.types
        if types.is_struct(have) and types.is_struct(wanted):
            return pa.struct(self.fields([*have], [*wanted], path + "."))
        if _is_list(have) and _is_list(wanted):
            item = self.merged(have.value_type, wanted.value_type, path + ".element")
            return pa.list_(have.value_field.with_type(item))
        if types.is_map(have) and types.is_map(wanted):
            key = self.merged(have.key_type, wanted.key_type, path + ".key")
            item = self.merged(have.item_type, wanted.item_type, path + ".value")
            return pa.map_(have.key_field.with_type(key), have.item_field.with_type(item))
        if have == wanted or _holds(have, wanted):
            return have
        if _holds(wanted, have):
            self.widened.append(path)
            return wanted
        self.wrong.append((path, f"is {wanted}, and {have} in the table"))
        return have


def _is_list(given: pyarrow.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(given) or pa.types.is_large_list(given))


def _holds(wide: pyarrow.DataType, narrow: pyarrow.DataType) -> bool:
    """Return True if a column of the type `narrow` may become one of `wide`, by the rules of both formats."""
    import pyarrow as pa

    if pa.types.is_decimal128(wide) and pa.types.is_decimal128(narrow):
        return bool(wide.scale == narrow.scale and wide.precision >= narrow.precision)
    return (wide, narrow) in ((pa.int64(), pa.int32()), (pa.float64(), pa.float32()))
