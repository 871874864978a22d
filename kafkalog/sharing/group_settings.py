"""Settings of a queue's group, as clients change them: at the server, which keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog.config.keys import value_text
from kafkalog.errors import ConfigError, from_code
from kafkalog.sharing.links import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS

if TYPE_CHECKING:
    from kafkalog.sharing.links import Link

START: Final = "share.auto.offset.reset"
_GROUP: Final = 32
_OF_THE_GROUP: Final = 8
"""Source of a setting: the group itself."""
_SET: Final = 0
_INVALID_CONFIG: Final = 40


def missing(
    own: Mapping[str, str], defaults: Mapping[str, str], settings: Mapping[str, object]
) -> dict[str, str]:
    """Return the settings to change: those that differ, and defaults that the group does not have itself."""
    wanted = {name: value_text(value) for name, value in settings.items()}
    changed = {name: value for name, value in wanted.items() if own.get(name) != value}
    return {name: value for name, value in defaults.items() if name not in own and name not in wanted} | changed


async def apply_settings(
    link: Link, group: str, defaults: Mapping[str, str], settings: Mapping[str, object]
) -> None:
    """Give a group its settings. ConfigError, InvalidRequest, PeerError and errors of authorization."""
    defaults, settings = _as_text(defaults, group), _as_text(settings, group)
    names = [*{**defaults, **settings}]
    if not names:
        return
    resource = {"resource_type": _GROUP, "resource_name": group, "configuration_keys": names}
    tree = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    answer = await link.request(DESCRIBE_CONFIGS, tree)
    [row] = _checked(answer.results, group)
    own = {one.name: one.value or "" for one in row.configs if one.config_source == _OF_THE_GROUP}
    changes = missing(own, defaults, settings)
    if changes:
        rows = [{"name": name, "config_operation": _SET, "value": value} for name, value in changes.items()]
        changed = {"resource_type": _GROUP, "resource_name": group, "configs": rows}
        answer = await link.request(INCREMENTAL_ALTER_CONFIGS, {"resources": [changed], "validate_only": False})
        _checked(answer.responses, group)


def _as_text(settings: Mapping[str, object], group: str) -> dict[str, str]:
    """Return names and values as the protocol has them; raise ConfigError for text without a form in UTF-8."""
    found = {str(name): value_text(value) for name, value in settings.items()}
    for name, value in found.items():
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            what = f"settings of queue {group}: {ascii(name)[:80]} is {ascii(value)[:80]}"
            raise ConfigError(what, hint="use characters of UTF-8") from None
    return found


def _checked(rows: Any, group: str) -> Any:
    for row in rows:
        if row.error_code:
            message = f"settings of queue {group}: {row.error_message or 'they were refused'}"
            raise ConfigError(message) if row.error_code == _INVALID_CONFIG else from_code(row.error_code, message)
    return rows
