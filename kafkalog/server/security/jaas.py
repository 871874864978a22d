"""Users of PLAIN in the settings, in a broker's format: options `user_NAME="PASSWORD"` of a login module.

    listener.name.LISTENER.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
        user_alice="secret" user_bob="other";
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from kafkalog.errors import ConfigError

_OPTION: Final = re.compile(r'\s*([^\s="]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))', re.DOTALL)
_HEAD: Final = re.compile(r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)(?=[\s;])", re.IGNORECASE)
_USER: Final = "user_"


@lru_cache(maxsize=16)
def plain_users(text: str) -> dict[str, str]:
    """Return the passwords by user name. ConfigError if the text is not a login module with options."""
    return {name.removeprefix(_USER): value for name, value in _options(text).items() if name.startswith(_USER)}


def own_login(text: str) -> tuple[str, str]:
    """Return a client's (user, password) from `username="NAME" password="PASSWORD"`. ConfigError."""
    options = _options(text)
    try:
        return options["username"], options["password"]
    except KeyError as error:
        hint = 'write: ...ScramLoginModule required username="NAME" password="PASSWORD";'
        raise ConfigError(f"a client's sasl.jaas.config has no {error.args[0]}", hint=hint) from None


def _options(text: str) -> dict[str, str]:
    head = _HEAD.match(text)
    if head is None:
        raise ConfigError("a sasl.jaas.config does not start with a login module and its flag", hint=_SHAPE)
    options = {}
    position = head.end()
    while (option := _OPTION.match(text, position)) is not None:
        name, quoted, bare = option.groups()
        options[name] = re.sub(r"\\(.)", r"\1", quoted) if bare is None else bare
        position = option.end()
    if text[position:].strip() != ";":
        raise ConfigError("a sasl.jaas.config has an invalid option or no final semicolon", hint=_SHAPE)
    return options


_SHAPE: Final = 'write: ...PlainLoginModule required user_NAME="PASSWORD";'
