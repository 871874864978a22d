"""A schema registry's server, asked over HTTP: each schema once, kept in memory and, if wished, on disk."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.client import HTTPException
from typing import Final, NoReturn
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from kafkalog.errors import IllegalArgument, StorageError, Unauthorized
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS, FileSystem, atomic_write, make_directories
from kafkalog.util.os_errors import os_errors
from kafkalog.values.schemas.source import (
    LOOK_AGAIN_MS,
    MAX_SCHEMA_BYTES,
    RegistryUnavailable,
    Schema,
    UnknownSchema,
    schema_from_json,
)

TIMEOUT_S: Final = 10.0
MOST_MISSING: Final = 10_000
"""Ids that the registry did not have, which are remembered for a while; beyond, the oldest is forgotten."""
MOST_NAME: Final = 200
"""Bytes of a cached file's name without its suffix; a hash stands for the rest of a longer one."""
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class SchemaRegistry:
    """A registry at an http or https address, which may carry a login: `https://user:password@host:8081`.

    `login` is (user, password), `token` a bearer token. `timeout_s` limits each wait for the server; a whole request
    may take ten times as long. `cache` is a directory for the schemas that were fetched: an id's schema never changes,
    so they are used without asking again, also while the registry is down. An id that is missing is asked for again
    after half a minute. A redirect is not followed, since it would carry the login to another server.
    """

    def __init__(
        self, url: str, *, login: tuple[str, str] | None = None, token: str | None = None,
        timeout_s: float = TIMEOUT_S, cache: str | os.PathLike[str] | None = None, fs: FileSystem = OS,
    ) -> None:  # fmt: skip
        self.url, found = _split(url)
        login = login if login is not None else found
        if login is not None and token is not None:
            raise IllegalArgument("a registry takes a login or a token", hint="give one of them")
        if not timeout_s > 0:
            raise IllegalArgument(f"a time-out of {timeout_s} s is not above 0")
        self._headers = {"Accept": _ACCEPT}
        if login is not None:
            pair = base64.b64encode(":".join(login).encode()).decode()
            self._headers["Authorization"] = f"Basic {pair}"
        elif token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._timeout_s = timeout_s
        self._cache = None if cache is None else os.fspath(cache)
        self._fs = fs
        self._known: dict[str, Schema] = {}
        self._lock = threading.Lock()
        self._missing: dict[str, tuple[str, int]] = {}

    def by_id(self, number: int) -> Schema:
        """Return the schema with an id, from the cache if it is there."""
        return self._found(f"/schemas/ids/{number}", f"schema {number}", number)

    def by_version(self, subject: str, version: int | None = None) -> Schema:
        """Return a version of a subject; the latest is asked for each time, and kept for when the registry is down."""
        path = f"/subjects/{quote(subject, safe='')}/versions/{'latest' if version is None else version}"
        words = f"the latest version of {subject}" if version is None else f"version {version} of {subject}"
        if version is not None:
            return self._found(path, words)
        try:
            found = self._fetched(path, words, None)
        except RegistryUnavailable:
            kept = self._kept(path, None)
            if kept is None:
                raise
            return kept
        self._known[path] = found
        return found

    def schemas_of(self, subject: str | None) -> Iterator[Schema]:
        """Yield the schemas of a subject, the latest version first."""
        if subject is None:
            return
        data = self._get(f"/subjects/{quote(subject, safe='')}/versions", f"the versions of {subject}")
        try:
            versions = sorted(map(int, json.loads(data)), reverse=True)
        except (ValueError, TypeError, RecursionError) as error:
            raise RegistryUnavailable(f"{self.url} answered with something that is no list: {error}") from None
        for version in versions:
            yield self.by_version(subject, version)

    def _found(self, path: str, words: str, number: int | None = None) -> Schema:
        found = self._kept(path, number)
        if found is None:
            text, until = self._missing.get(path, ("", 0))
            if text and SYSTEM_CLOCK.monotonic_ms() < until:
                raise UnknownSchema(text)
            try:
                found = self._fetched(path, words, number)
            except UnknownSchema as error:
                with self._lock:
                    self._missing.pop(path, None)
                    while len(self._missing) >= MOST_MISSING:
                        del self._missing[next(iter(self._missing))]
                    self._missing[path] = error.message, SYSTEM_CLOCK.monotonic_ms() + LOOK_AGAIN_MS
                raise
        self._known[path] = found
        return found

    # What was fetched before

    def _file(self, path: str) -> str:
        name = quote(urlunsplit(urlsplit(self.url)._replace(scheme="")).strip("/") + path, safe="")
        if len(name) > MOST_NAME:
            hashed = hashlib.sha256(name.encode()).hexdigest()
            name = f"{name[: MOST_NAME - len(hashed) - 1]}-{hashed}"
        return os.path.join(self._cache or "", f"{name}.json")

    def _kept(self, path: str, number: int | None) -> Schema | None:
        if path in self._known or self._cache is None:
            return self._known.get(path)
        try:
            data = self._fs.read_file(self._file(path), MAX_SCHEMA_BYTES)
            return schema_from_json(json.loads(data), self.url, number)
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError, RecursionError):
            return None  # a damaged file is written again
        except OSError as error:
            raise StorageError.from_os(error, "read the cached schema", path=self._file(path)) from error

    def _keep(self, path: str, data: bytes) -> None:
        if self._cache is None:
            return
        with os_errors("cache the schema", self._file(path)):
            make_directories(self._fs, self._cache)
            atomic_write(self._fs, self._file(path), data, sync=False, sync_entry=False, shared=True)

    # The server

    def _fetched(self, path: str, words: str, number: int | None) -> Schema:
        data = self._get(path, words)
        try:
            found = schema_from_json(json.loads(data), self.url, number)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise RegistryUnavailable(f"{self.url} answered with something that is no schema: {error}") from None
        self._keep(path, data)
        return found

    def _get(self, path: str, words: str) -> bytes:
        from urllib.error import HTTPError, URLError
        from urllib.request import Request

        from kafkalog.values.schemas.opener import opener

        request = Request(self.url + path, headers=self._headers)
        try:
            with opener().open(request, timeout=self._timeout_s) as answer:
                data: bytes = answer.read(MAX_SCHEMA_BYTES + 1)
        except HTTPError as error:
            with error:
                self._refused(error.code, words)
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise RegistryUnavailable(f"{self.url} was not reached for {words}: {reason}") from None
        if len(data) > MAX_SCHEMA_BYTES:
            raise RegistryUnavailable(f"{self.url} answered for {words} with more than {MAX_SCHEMA_BYTES} bytes")
        return data

    def _refused(self, status: int, words: str) -> NoReturn:
        if status == 404:
            raise UnknownSchema(f"{words} is missing: {self.url} does not have it")
        if status in (401, 403):
            raise Unauthorized(f"{self.url} refused the login for {words}", hint="give the registry's login or token")
        raise RegistryUnavailable(f"{self.url} answered for {words} with status {status}")

    def __repr__(self) -> str:
        return f"<SchemaRegistry {self.url}>"


def _split(url: str) -> tuple[str, tuple[str, str] | None]:
    """Return an address without its login, and the login."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise IllegalArgument("the address of a schema registry is http://host:port or https://host:port")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    login = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    return urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")), login
