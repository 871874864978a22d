"""The source of schemas that a word names: an address, a data directory, or a directory of files."""

from __future__ import annotations

import os
from typing import Any

from kafkalog.errors import IllegalArgument
from kafkalog.values.schemas.directory import SchemaDirectory
from kafkalog.values.schemas.source import SchemaSource


def schema_source(where: str | os.PathLike[str] | SchemaSource, **options: Any) -> SchemaSource:
    """Return the source: a registry for `http://…` and `https://…`, the topic `_schemas` of a data directory, or files.

    `options` are those of `SchemaRegistry`, which the other two do not take. A source is returned as it is.

    >>> schema_source("http://user:secret@localhost:8081")
    <SchemaRegistry http://localhost:8081>
    """
    if not isinstance(where, str | os.PathLike):
        return where
    path = os.fspath(where)
    if path.startswith(("http://", "https://")):
        from kafkalog.values.schemas.registry import SchemaRegistry

        return SchemaRegistry(path, **options)
    if given := [name for name, value in options.items() if value is not None]:
        raise IllegalArgument(f"{', '.join(given)}: only a registry's address takes that", path=path)
    if "://" in path:  # which may have a login: it is not shown
        raise IllegalArgument(
            "schemas are at an address that begins with neither http:// nor https://", hint="give one, or a directory"
        )
    from kafkalog.values.schemas.topic import PARTITION, SchemaTopic

    return SchemaTopic(path) if os.path.isdir(os.path.join(path, PARTITION)) else SchemaDirectory(path)
