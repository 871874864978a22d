"""Typed columns: keys and values of records decoded into Arrow columns.

>>> import pyarrow
>>> from kafkalog import values
>>> found = values.decoder("string").decode(pyarrow.array(["Zürich".encode(), b"\\xff", None]))
>>> found.values.to_pylist(), found.errors.to_pylist(), found.failed
(['Zürich', None, None], [None, 'it is not UTF-8', None], 1)

`decoder` returns a ValueDecoder by its name; docs/values.md lists the names and their options. Schemas come from a
file, a directory, a registry's address or the topic `_schemas` of a data directory.
"""

from __future__ import annotations

from kafkalog.values.decoding import Decoded, ValueDecoder
from kafkalog.values.named import NAMES, decoder
from kafkalog.values.schemas.choose import schema_source
from kafkalog.values.schemas.source import RegistryUnavailable, Schema, SchemaSource, UnknownSchema

__all__ = [
    "NAMES", "Decoded", "RegistryUnavailable", "Schema", "SchemaSource", "UnknownSchema", "ValueDecoder", "decoder",
    "schema_source",
]  # fmt: skip
