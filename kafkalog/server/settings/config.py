"""The settings of a server, its store's and its own, from a `server.properties` file or by name."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kafkalog.config.broker import BROKER_TABLE, BrokerConfig
from kafkalog.config.keys import Key, parse_value, value_text
from kafkalog.errors import ConfigError, StorageError
from kafkalog.server.settings.table import SERVER_CONFIGS, check_together
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.properties import parse_properties

_LOG: Final = logging.getLogger(__name__)
_BY_NAME: Final = {key.name: key for key in SERVER_CONFIGS}
STORE_NAMES: Final = frozenset(key.name for key in BROKER_TABLE.keys)
KEYS: Final = tuple(sorted((*SERVER_CONFIGS, *BROKER_TABLE.keys), key=lambda key: key.name))
"""The definitions of all settings, sorted by name."""
_DIRECTORIES: Final = ("log.dirs", "log.dir")
MAX_FILE_BYTES: Final = 1 << 20
MAX_FILE_HINT: Final = "is it the right file?"


class ServerConfig:
    """Settings by their dotted names: `config["num.io.threads"]`; `store` has those of the logs. Immutable.

    `of_listener` returns the settings of a listener (`listener.name.NAME.SETTING`). Names without a meaning for a
    single node are in `ignored`, as a broker ignores unknown names.
    """

    __slots__ = ("_given", "_listener_values", "_values", "ignored", "ignored_values", "store")

    def __init__(self, given: Mapping[str, object] | None = None) -> None:
        own: dict[str, object] = {}
        store: dict[str, object] = {}
        ignored: list[str] = []
        self._listener_values: dict[str, object] = {}
        for name, value in (given or {}).items():
            if name in _BY_NAME:
                own[name] = parse_value(_BY_NAME[name], value)
            elif name in STORE_NAMES:
                if name != "default.replication.factor":  # files of clusters often set it to 3
                    store[name] = value
            elif name.startswith("listener.name."):
                self._listener_values[name] = value
            elif name not in _DIRECTORIES:
                ignored.append(name)
        self._given = {name: value for name, value in (given or {}).items() if name not in ignored}
        self.store = BrokerConfig.from_mapping(store)
        self._values: dict[str, Any] = {name: own.get(name, key.default) for name, key in _BY_NAME.items()}
        self.ignored = tuple(sorted(ignored))
        self.ignored_values: dict[str, object] = {name: (given or {})[name] for name in self.ignored}
        check_together(self._values)

    def __getitem__(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        return getattr(self.store, BROKER_TABLE.find(name).attribute)

    def __contains__(self, name: object) -> bool:
        return name in self._values or name in STORE_NAMES

    def __iter__(self) -> Iterator[str]:
        yield from self._values
        yield from sorted(STORE_NAMES)

    def key(self, name: str) -> Key:
        """Return the definition of a setting: type, default, documentation. Raise UnknownConfig."""
        return _BY_NAME[name] if name in _BY_NAME else BROKER_TABLE.find(name)

    def is_set(self, name: str) -> bool:
        """Return True if the setting was given, as opposed to its default."""
        return name in self._given

    def given(self) -> dict[str, Any]:
        """Return the given settings by name, in a form that `ServerConfig` accepts."""
        return dict(self._given)

    def of_listener(self, listener: str, name: str) -> Any:
        """Return a setting for one listener: its own, or the server's."""
        value = self.listener_setting(listener, name)
        return self._values[name] if value is None else parse_value(_BY_NAME[name], value)

    @property
    def listener_settings(self) -> tuple[str, ...]:
        """Names of all given per-listener settings, sorted."""
        return tuple(sorted(self._listener_values))

    def listener_setting(self, listener: str, name: str) -> Any:
        """Return the text given for this listener only, such as a mechanism's users, or None."""
        return self._listener_values.get(f"listener.name.{listener.lower()}.{name}")

    def with_(self, values: Mapping[str, object]) -> ServerConfig:
        """Return a copy with some settings changed, by dotted names; None resets one to its default."""
        merged = {**self._given, **self.ignored_values, **values}
        return ServerConfig({name: value for name, value in merged.items() if value is not None})

    @property
    def directories(self) -> tuple[str, ...]:
        """The data directories of `log.dirs`, or `log.dir`."""
        for name in _DIRECTORIES:
            if name in self._given:
                return tuple(part.strip() for part in value_text(self._given[name]).split(",") if part.strip())
        return ()

    def slips(self) -> list[str]:
        """Return a sentence for each ignored name that is similar to a known one."""
        from difflib import get_close_matches

        known = [*self]
        matches = {name: get_close_matches(name, known, n=1, cutoff=0.9) for name in self.ignored}
        return [f"{name} is not a server setting; did you mean {one[0]}?" for name, one in matches.items() if one]

    def log_ignored(self) -> None:
        """Log the ignored names in one line, and a warning for each likely typo."""
        for slip in self.slips():
            _LOG.warning("%s", slip)
        if self.ignored:
            _LOG.info("ignored settings that do not apply to a single node: %s", ", ".join(self.ignored))


def read_server_properties(path: str | os.PathLike[str], fs: FileSystem = OS) -> dict[str, str]:
    """Read the pairs of a `server.properties` file. Raise StorageError, ConfigError."""
    try:
        content = fs.read_file(path, MAX_FILE_BYTES)
    except OSError as error:
        raise StorageError.from_os(error, "read the settings", path=path) from error
    except ValueError as error:
        raise ConfigError(f"cannot read the settings: {error}", path=path, hint=MAX_FILE_HINT) from None
    return parse_properties(content)
