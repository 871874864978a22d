"""Names of Iceberg and Delta tables, as users write them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import IllegalArgument

if TYPE_CHECKING:
    from kafkalog.lake.table import LakeTable

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
_FORMS: Final = "iceberg:DIRECTORY/NAMESPACE.TABLE, iceberg://CATALOG/NAMESPACE.TABLE, or a Delta table's path or URL"


class DeltaTarget(NamedTuple):
    """A Delta table: its path or URL, and the options of its store."""

    url: str
    options: Mapping[str, str] = _EMPTY


class IcebergTarget(NamedTuple):
    """An Iceberg table: its catalog's name or the directory of a local one, the catalog's properties, and its name."""

    identifier: str
    catalog: str | None = None
    warehouse: str | None = None
    options: Mapping[str, str] = _EMPTY


def parse_target(text: str, options: Mapping[str, str] = _EMPTY) -> DeltaTarget | IcebergTarget:
    """Return the table that `text` names; raise IllegalArgument if it names none.

    >>> parse_target("iceberg:lake/shop.orders").warehouse, parse_target("delta://lake/orders").url
    ('lake', 'lake/orders')
    >>> parse_target("iceberg://prod/shop.orders", {"uri": "http://catalog"}).catalog
    'prod'
    """
    scheme, colon, rest = text.partition(":")
    if not colon or scheme not in ("iceberg", "delta"):
        if not text:
            raise IllegalArgument("the table has no name", hint=f"give {_FORMS}")
        return DeltaTarget(text, options)
    if scheme == "delta":
        url = rest.removeprefix("//")
        if not url:
            raise IllegalArgument(f"{text!r} does not name a table", hint=f"give {_FORMS}")
        return DeltaTarget(url, options)
    is_catalog = rest.startswith("//")
    place, _, identifier = (rest[2:] if is_catalog else rest).rpartition("/")
    parts = identifier.split(".")
    if len(parts) < 2 or not all(parts) or (is_catalog and (not place or "/" in place)):
        raise IllegalArgument(f"{text!r} does not name an Iceberg table", hint=f"give {_FORMS}")
    if is_catalog:
        return IcebergTarget(identifier, catalog=place, options=options)
    return IcebergTarget(identifier, warehouse=place or os.curdir, options=options)


def open_table(target: DeltaTarget | IcebergTarget, topic: str) -> LakeTable:
    """Return the table of a target for syncs of `topic`, created or not; raise MissingPackage, StorageError."""
    if isinstance(target, DeltaTarget):
        from kafkalog.lake.delta import DeltaLakeTable

        return DeltaLakeTable(target, topic)
    from kafkalog.lake.iceberg import IcebergTable

    return IcebergTable(target, topic)
