"""Dynamic settings: changed by clients at run time, kept in the first data directory and applied again at the start.

`kafkalog.settings.json` has them by resource, as in the protocol: those of nodes, by the node's number or "" for every
node, and those of groups and of subscriptions to metrics of clients.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.config.keys import list_items, parse_value, value_text
from kafkalog.errors import ConfigError, CorruptCheckpoint, InvalidRequest, KafkalogError, PolicyViolation, StorageError
from kafkalog.server.node.changing import Changing
from kafkalog.server.node.parts import Part
from kafkalog.server.settings.broker_checks import LIVE, UNDEFINED, check_broker_changes
from kafkalog.server.settings.config import STORE_NAMES
from kafkalog.server.settings.kinds import GROUP, KEPT
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors, read_if_present

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

SETTINGS_FILE: Final = "kafkalog.settings.json"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 1 << 20
_CORDONED: Final = "cordoned.log.dirs"
_THREADS: Final = "log.cleaner.threads"
MIN_ISR: Final = "min.insync.replicas"
Changed = dict[str, dict[str, str]]
"""By resource, then by name."""
Kept = Mapping[int, Changed]
"""By type, then as above."""
_LOG: Final = logging.getLogger(__name__)


class DynamicSettings(Changing, Part):
    """The changed settings by resource; `given` has those the node was started with. Used only in the loop's thread."""

    def __init__(self, node: Node, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        super().__init__()
        self.path = os.path.join(os.fspath(directory), SETTINGS_FILE)
        self.turn = asyncio.Lock()
        """Held by a request from reading a resource's settings until they are changed, those of topics too."""
        self.given: Mapping[str, object] = node.config.given()
        self._node = node
        self._fs = fs
        self._changed: Changed = {}
        self._kept: Kept = {kind: {} for kind in KEPT}
        self.on_change: Callable[[], object] = lambda: None
        """Called after a change is on disk."""

    def of(self, resource: str) -> Mapping[str, str]:
        """Return the settings changed for one node, or for all nodes ("").

        A cluster with eligible leader replicas (KIP-966), such as a new one of the reference, always has
        `min.insync.replicas` for all nodes, even if it was never changed.
        """
        own = self._changed.get(resource, {})
        return own if resource else {MIN_ISR: value_text(self.given.get(MIN_ISR, 1)), **own}

    def of_group(self, group_id: str) -> Mapping[str, str]:
        """Return the settings of a group."""
        return self.kept(GROUP, group_id)

    def kept(self, kind: int, name: str) -> Mapping[str, str]:
        """Return the settings of a resource of one of the types in `kinds.KEPT`."""
        return self._kept[kind].get(name, {})

    def names_of(self, kind: int) -> list[str]:
        """Return the resources of such a type that have settings, sorted."""
        return sorted(self._kept[kind])

    def use_groups(self, settings: Changed) -> None:
        """Use these settings of groups, in memory only: a worker has them from the main process."""
        self._kept = {**self._kept, GROUP: settings}

    def all_kept(self) -> Kept:
        """Return the settings of all resources of such types."""
        return self._kept

    async def start(self) -> None:
        """Apply the file's settings; log and skip those no longer valid. Raise CorruptCheckpoint, StorageError."""
        self._changed, self._kept = await self._node.run(self._read)
        changed = {**self._changed.get("", {}), **self.of(str(self._node.node_id))}
        changed = {name: value for name, value in changed.items() if self._has_effect(name)}
        for name in [one for one in changed if one not in STORE_NAMES | LIVE]:
            _LOG.warning("%s: %s is ignored: it is read only at startup", self.path, name)
            del changed[name]
        threads = changed.pop(_THREADS, None)
        self._step_to_threads(threads, is_last=False)  # fewer threads may need to come before a smaller buffer
        try:
            self._node.alter_config(changed)
        except KafkalogError:  # apply each, to log the failing ones
            for name, value in changed.items():
                self._set_at_start(name, value)
        self._step_to_threads(threads, is_last=True)  # and more threads after a larger one

    def _step_to_threads(self, text: str | None, *, is_last: bool) -> None:
        """Set the number of cleaner threads in steps, since one change at most doubles or halves it."""
        if text is None:
            return
        try:
            target = parse_value(self._node.config.key(_THREADS), text)
            while target and (now := self._node.config[_THREADS]) != target:
                self._node.alter_config({_THREADS: str(min(max(target, now // 2), now * 2))})
        except KafkalogError as error:
            if is_last:
                self._log_ignored(_THREADS, error)

    def _set_at_start(self, name: str, value: str) -> None:
        try:
            self._node.alter_config({name: value})
        except KafkalogError as error:
            self._log_ignored(name, error)

    def _log_ignored(self, name: str, error: KafkalogError) -> None:
        _LOG.warning("%s: %s is ignored: %s", self.path, name, error)

    def check(self, changes: Mapping[str, str | None], resource: str) -> None:
        """Raise ConfigError or InvalidRequest unless all these settings may change at run time."""
        try:
            overridden = () if resource else self.of(str(self._node.node_id))
            check_broker_changes(self._node.config, changes, resource, overridden)
            given = {name: value for name, value in changes.items() if value is not None and self._has_effect(name)}
            self._node.config.store.changed({name: given[name] for name in given if name in STORE_NAMES})
        except ConfigError as error:
            raise InvalidRequest(error.message) from None
        self._check_cordoned(changes.get(_CORDONED))
        if MIN_ISR in changes and resource:
            raise ConfigError(f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
        if MIN_ISR in changes and changes[MIN_ISR] is None:
            raise ConfigError(f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")

    def _has_effect(self, name: str) -> bool:
        """Return True for a setting of this server; others are only kept."""
        return name in self._node.config and name not in UNDEFINED

    def _check_cordoned(self, value: str | None) -> None:
        """Raise InvalidRequest, as in the reference, unless all entries are directories of this node."""
        known = {one.path for one in self._node.store.directories}
        listed = [one for one in list_items(value or "") if one not in ("", "*")]
        missing = [one for one in listed if "\0" in one or os.path.realpath(one) not in known]
        if missing:
            raise InvalidRequest(
                f"requirement failed: All entries in {_CORDONED} must be present in log.dirs or log.dir. "
                f"Missing entries : {', '.join(missing)}"
            )

    async def change(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Change settings on disk and apply them at once; None resets one. Raises as `check`, and StorageError."""
        async with self._changing:
            self.check_change()
            self.check(changes, resource)
            try:
                await self._set(_with(self._changed, resource, changes), self._kept, changes)
            except ConfigError as error:
                raise InvalidRequest(error.message) from None

    @property
    def everywhere(self) -> Mapping[str, str]:
        """Settings changed for all nodes."""
        return self._changed.get("", {})

    async def take(self, everywhere: Mapping[str, str], given: Kept) -> None:
        """Take over the leader's settings for all nodes and those of `given` types. Raise ConfigError, StorageError."""
        async with self._changing:
            own = self.everywhere
            names = {name for name in (*own, *everywhere) if own.get(name) != everywhere.get(name)}
            changes = {name: everywhere.get(name) for name in sorted(names)}
            kept = {**self._kept, **given}
            if changes or kept != self._kept:
                await self._set(_with(self._changed, "", changes), kept, changes)

    async def _set(self, changed: Changed, kept: Kept, names: Iterable[str]) -> None:
        before = {name: self._effective(self._changed, name) for name in names if self._has_effect(name)}
        after = {name: self._effective(changed, name) for name in before}
        before = {name: value for name, value in before.items() if value != after[name]}
        if before:
            self._node.alter_config({name: after[name] for name in before})
        try:
            await self._node.run(self._write, changed, kept)
        except (StorageError, PolicyViolation):
            if before:
                self._node.alter_config(before)
            raise
        self._changed, self._kept = changed, kept
        self.on_change()

    async def change_kept(self, kind: int, name: str, changes: Mapping[str, str | None]) -> None:
        """Change checked settings of a resource that `kept` returns; None resets one.

        Raise StorageError, PolicyViolation.
        """
        async with self._changing:
            self.check_change()
            kept = {**self._kept, kind: _with(self._kept[kind], name, changes)}
            await self._node.run(self._write, self._changed, kept)
            self._kept = kept
            self.on_change()

    def _effective(self, changed: Mapping[str, Mapping[str, str]], name: str) -> str | None:
        for values in (changed.get(str(self._node.node_id), {}), changed.get("", {}), self.given):
            if name in values:
                return value_text(values[name])
        return None

    def _read(self) -> tuple[Changed, Kept]:
        content = read_if_present(self.path, MAX_FILE_BYTES, "read the changed settings", self._fs)
        if content is None:
            return {}, {kind: {} for kind in KEPT}
        try:
            return _parsed(content)
        except (ValueError, RecursionError) as error:
            hint = "repair it by hand, or move it away to use the settings given at startup"
            raise CorruptCheckpoint(f"the changed settings are damaged: {error}", path=self.path, hint=hint) from None

    def _write(self, changed: Changed, kept: Kept) -> None:
        sections = {KEPT[kind]: values for kind, values in kept.items() if values}
        tree = {"version": VERSION, "settings": changed, **sections}
        content = json.dumps(tree, indent=1, sort_keys=True) + "\n"
        if len(content) > MAX_FILE_BYTES:  # the next start would reject it
            raise PolicyViolation(f"the changed settings would exceed {MAX_FILE_BYTES} bytes")
        with os_errors("write the changed settings", self.path):
            atomic_write(self._fs, self.path, content.encode(), private=True)


def _with(changed: Changed, resource: str, changes: Mapping[str, str | None]) -> Changed:
    """Return the settings with `changes` applied, without resources that have none left."""
    own = {name: value for name, value in changed.get(resource, {}).items() if name not in changes}
    own |= {name: value for name, value in changes.items() if value is not None}
    others = {name: values for name, values in changed.items() if name != resource}
    return {**others, resource: own} if own else others


def _parsed(content: bytes) -> tuple[Changed, Kept]:
    data = json.loads(content.decode())
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("settings"), dict):
        raise ValueError(f"it is not an object with version {VERSION} and settings")
    kept = {kind: data.get(section, {}) for kind, section in KEPT.items()}
    for section, values in (("settings", data["settings"]), *((KEPT[kind], kept[kind]) for kind in KEPT)):
        if not isinstance(values, dict):
            raise ValueError(f"{section!r} is not an object")
        for own in values.values():
            if not isinstance(own, dict) or not all(isinstance(value, str) for value in own.values()):
                raise ValueError("the settings of a resource are not names with text")
    return data["settings"], kept


def make(node: Node) -> DynamicSettings:
    """Create the dynamic settings of a node, kept in its first data directory."""
    return DynamicSettings(node, node.store.directories[0].path)
