"""A directory of schemas, one file each, named by the id: `7.avsc` is Avro, `7.desc` and `7.proto` are Protobuf."""

from __future__ import annotations

import os
from typing import Final

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.values.schemas.source import AVRO, JSON, MAX_SCHEMA_BYTES, PROTOBUF, Schema, UnknownSchema

SUFFIXES: Final = {".avsc": AVRO, ".desc": PROTOBUF, ".proto": PROTOBUF, ".json": JSON}


class SchemaDirectory:
    """The schemas of a directory, each read at its first use. IllegalArgument if the directory does not exist."""

    def __init__(self, path: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        self.path = os.fspath(path)
        self._fs = fs
        self._known: dict[tuple[int, str | None], Schema] = {}
        if not os.path.isdir(self.path):
            raise IllegalArgument("the schema directory does not exist", path=self.path)

    def by_id(self, number: int, suffix: str | None = None) -> Schema:
        """Return the schema of a file; with `suffix` only a file of that kind. Errors as for any SchemaSource.

        >>> with open("7.avsc", "w") as file:
        ...     print('"string"', file=file)
        >>> SchemaDirectory(".").by_id(7).content
        b'"string"\\n'
        """
        key = number, suffix
        if key not in self._known:
            self._known[key] = self._read(number, (suffix,) if suffix else tuple(SUFFIXES))
        return self._known[key]

    def _read(self, number: int, suffixes: tuple[str, ...]) -> Schema:
        for suffix in suffixes:
            path = os.path.join(self.path, f"{number}{suffix}")
            try:
                content = self._fs.read_file(path, MAX_SCHEMA_BYTES)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError.from_os(error, "read the schema", path=path) from error
            return Schema(content, SUFFIXES[suffix], number, (), path)
        path = os.path.join(self.path, f"{number}{suffixes[0]}")
        raise UnknownSchema(f"schema {number} is missing: there is no file {path}")

    def by_version(self, subject: str, version: int | None = None) -> Schema:
        """Raise IllegalArgument: the files have ids, no subjects."""
        raise IllegalArgument(
            f"a directory of schemas has no subject {subject}", path=self.path, hint="give the schema by its id"
        )

    def __repr__(self) -> str:
        return f"<SchemaDirectory {self.path}>"
