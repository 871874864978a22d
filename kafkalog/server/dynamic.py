"""The node's settings that clients changed while it ran: kept in its first data directory, and set again at a start.

`kafkalog.settings.json` has them by resource, as the protocol does: "" is every node, else the node's number.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from typing import Any, Final

from kafkalog.config_keys import parse_value, value_text
from kafkalog.errors import ConfigError, CorruptCheckpoint, KafkalogError, StorageError
from kafkalog.server.config import STORE_NAMES
from kafkalog.util.fileio import OS, FileSystem, atomic_write

SETTINGS_FILE: Final = "kafkalog.settings.json"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 1 << 20
_THREADS: Final = "log.cleaner.threads"
LIVE: Final = frozenset({"connections.max.idle.ms", "max.connections", "max.connections.per.ip"})
"""What a broker changes while it runs, and this server does, too, besides the settings of its store."""
_LOG: Final = logging.getLogger(__name__)


class DynamicSettings:
    """What was changed, by resource; `given` is what the node was started with. All is called on the loop."""

    def __init__(self, node: Any, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        self.path = os.path.join(os.fspath(directory), SETTINGS_FILE)
        self.given: Mapping[str, Any] = node.config.given()
        self._node = node
        self._fs = fs
        self._changed: dict[str, dict[str, str]] = {}
        self._changing = asyncio.Lock()

    def of(self, resource: str) -> Mapping[str, str]:
        """What was changed for a resource."""
        return self._changed.get(resource, {})

    async def start(self) -> None:
        """Set what the file has. CorruptCheckpoint, StorageError; what is no setting any more is told and left."""
        self._changed = await self._node.run(self._read)
        changed = {**self.of(""), **self.of(str(self._node.node_id))}
        for name in [one for one in changed if one in self._node.config and one not in STORE_NAMES | LIVE]:
            _LOG.warning("%s: %s does not count: it is read at the start alone", self.path, name)
            del changed[name]
        self._step_to_threads(changed.pop(_THREADS, None))
        try:
            self._node.alter_config(changed)
        except KafkalogError:  # one of them: it is told which
            for name, value in changed.items():
                self._set_at_start(name, value)

    def _step_to_threads(self, text: str | None) -> None:
        """A change doubles or halves them at most, and several may lie behind us."""
        wanted = int(text) if text is not None and text.isdecimal() else 0
        while wanted and (now := self._node.config[_THREADS]) != wanted:
            if not self._set_at_start(_THREADS, str(min(max(wanted, now // 2), now * 2))):
                return

    def _set_at_start(self, name: str, value: str) -> bool:
        try:
            self._node.alter_config({name: value})
        except KafkalogError as error:
            _LOG.warning("%s: %s does not count: %s", self.path, name, error)
            return False
        return True

    async def stop(self) -> None:
        """Nothing to do: every change is on disk."""

    def check(self, changes: Mapping[str, str | None]) -> None:
        """Return where all of these may be set while the node runs; ConfigError with the reference's words."""
        config = self._node.config
        for name, value in changes.items():
            if name not in config:
                raise ConfigError(f"Unknown config name: {name}") from None
            key = config.key(name)
            if not key.dynamic or (value is not None and name not in STORE_NAMES and name not in LIVE):
                raise ConfigError(f"Cannot update these configs dynamically: Set({name})")
            if value is not None:
                parse_value(key, value)

    async def change(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Set these, on disk and at once; None takes one back to what it was without. ConfigError, StorageError."""
        async with self._changing:
            self.check(changes)
            own = {name: value for name, value in self.of(resource).items() if name not in changes}
            own |= {name: value for name, value in changes.items() if value is not None}
            changed = {**self._changed, resource: own}
            before = {name: self._effective(self._changed, name) for name in changes}
            self._node.alter_config({name: self._effective(changed, name) for name in changes})
            try:
                await self._node.run(self._write, changed)
            except StorageError:
                self._node.alter_config(before)
                raise
            self._changed = changed

    def _effective(self, changed: Mapping[str, Mapping[str, str]], name: str) -> str | None:
        for values in (changed.get(str(self._node.node_id), {}), changed.get("", {}), self.given):
            if name in values:
                return value_text(values[name])
        return None

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            content = self._fs.read_file(self.path, MAX_FILE_BYTES)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError.from_os(error, "read the changed settings", path=self.path) from error
        try:
            return _parsed(content)
        except (ValueError, RecursionError) as error:
            hint = "repair it by hand, or move it away: then the settings are those of the start"
            raise CorruptCheckpoint(f"the changed settings are damaged: {error}", path=self.path, hint=hint) from None

    def _write(self, changed: Mapping[str, Mapping[str, str]]) -> None:
        content = json.dumps({"version": VERSION, "settings": changed}, indent=1, sort_keys=True) + "\n"
        try:
            atomic_write(self._fs, self.path, content.encode(), private=True)
        except OSError as error:
            raise StorageError.from_os(error, "write the changed settings", path=self.path) from error


def _parsed(content: bytes) -> dict[str, dict[str, str]]:
    data = json.loads(content.decode())
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("settings"), dict):
        raise ValueError(f"it is no object with version {VERSION} and settings")
    for values in data["settings"].values():
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise ValueError("the settings of a resource are no names with text")
    return dict(data["settings"])


def make(node: Any) -> DynamicSettings:
    """The changed settings of a node: those in its first data directory."""
    return DynamicSettings(node, node.store.directories[0].path)
