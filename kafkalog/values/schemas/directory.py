"""A directory of schemas, one file each, named by the id: `7.avsc` is Avro, `7.desc` and `7.proto` are Protobuf."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import os_errors
from kafkalog.values.schemas.source import AVRO, JSON, MAX_SCHEMA_BYTES, PROTOBUF, Schema, UnknownSchema

MOST_ID: Final = 2**31 - 1
"""The largest id that a value can name."""
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

    def schemas_of(self, subject: str | None) -> Iterator[Schema]:
        """Yield all schemas, that with the largest id first."""
        with os_errors("list the schemas", self.path):
            stems = {os.path.splitext(name)[0] for name in self._fs.names(self.path)}
        for number in sorted((int(one) for one in stems if one.isascii() and one.isdecimal()), reverse=True):
            try:
                yield self.by_id(number)
            except UnknownSchema:
                continue

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

    def stored_id(self, content: bytes, suffix: str = ".avsc") -> int:
        """Return the id of the schema with this content; a new one is stored as a file with the next id.

        Raises StorageError.

        >>> SchemaDirectory(".").stored_id(b'"long"'), SchemaDirectory(".").stored_id(b'"long"')
        (1, 1)
        """
        with os_errors("store the schema", self.path):
            known = [int(stem) for stem, suffix in map(os.path.splitext, self._fs.names(self.path))
                     if suffix in SUFFIXES and stem.isascii() and stem.isdecimal() and int(stem) < MOST_ID]  # fmt: skip
            for number in sorted(known):
                path = os.path.join(self.path, f"{number}{suffix}")
                if self._fs.exists(path) and self._fs.read_file(path, MAX_SCHEMA_BYTES) == content:
                    return number
            number = max(known, default=0) + 1
            while not self._stores(number, suffix, content):
                number += 1
            return number

    def _stores(self, number: int, suffix: str, content: bytes) -> bool:
        """Write a new file; return False if another program has just written one with the id."""
        path = os.path.join(self.path, f"{number}{suffix}")
        try:
            file = self._fs.open_file(path, "exclusive")
        except FileExistsError:
            return False
        try:
            with file:
                file.pwrite(content, 0)
                file.sync()
            self._fs.fsync_dir(self.path)
        except BaseException:
            self._fs.unlink_if_exists(path)
            raise
        return True

    def by_version(self, subject: str, version: int | None = None) -> Schema:
        """Raise IllegalArgument: the files have ids, no subjects."""
        raise IllegalArgument(
            f"a directory of schemas has no subject {subject}", path=self.path, hint="give the schema by its id"
        )

    def __repr__(self) -> str:
        return f"<SchemaDirectory {self.path}>"
