"""TLS: contexts from PEM settings, and the principal of a client's certificate."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from kafkalog.errors import ConfigError, KafkalogError, StorageError
from kafkalog.server.requests.context import ANONYMOUS
from kafkalog.server.settings.config import ServerConfig

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_ATTRIBUTES: Final = {
    "commonName": "CN", "organizationalUnitName": "OU", "organizationName": "O", "localityName": "L",
    "stateOrProvinceName": "ST", "countryName": "C", "streetAddress": "STREET", "domainComponent": "DC",
    "userId": "UID",
}  # fmt: skip
_SPECIAL: Final = re.compile(r'([,+"\\<>;])|^([ #])|( )$')
_RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)


def tls_context(config: ServerConfig, listener: str) -> ssl.SSLContext:
    """Return a listener's context. Raise ConfigError if OpenSSL rejects a setting, StorageError for its file."""
    setting = partial(config.of_listener, listener)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, setting("ssl.enabled.protocols"))
    ciphers = setting("ssl.cipher.suites")
    if ciphers:
        call_openssl("ssl.cipher.suites", context.set_ciphers, ":".join(ciphers))
    _load_key(context, setting)
    context.verify_mode = _VERIFY_MODES[setting("ssl.client.auth")]
    location, text = setting("ssl.truststore.location"), setting("ssl.truststore.certificates")
    if location:
        call_openssl("ssl.truststore.location", context.load_verify_locations, location, path=location)
    elif text:
        call_openssl("ssl.truststore.certificates", partial(context.load_verify_locations, cadata=text))
    elif context.verify_mode is not ssl.CERT_NONE:
        raise ConfigError(
            f"listener {listener} requests client certificates, but trusts none",
            hint="set ssl.truststore.location to a PEM file with the certificates of the authorities that sign them",
        )
    return context


def principal_of(certificate: Mapping[str, Any] | None, rules: PrincipalRules) -> str:
    """Return `User:` and the name of a certificate from `SSLSocket.getpeercert` by the rules, else ANONYMOUS.

    ValueError if no rule matches.
    """
    if not certificate:
        return ANONYMOUS
    return "User:" + rules.name_of(distinguished_name(certificate.get("subject", ())))


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """Return the name in Java's form (RFC 2253): the last part first, joined by commas."""
    parts = []
    for rdn in reversed(subject):
        pairs = ((_ATTRIBUTES.get(key, key), _SPECIAL.sub(r"\\\g<0>", value)) for key, value in rdn)
        parts.append("+".join(f"{key}={value}" for key, value in pairs))
    return ",".join(parts)


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None  # None for DEFAULT: the name unchanged
    replacement: str
    case: str


class PrincipalRules:
    """`ssl.principal.mapping.rules`: the first rule whose pattern matches the whole name sets the principal's name."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        remaining = text.strip() or "DEFAULT"
        while remaining:
            remaining = remaining.lstrip(" ,")
            if remaining.startswith("DEFAULT"):
                self._rules.append(_Rule(None, "", ""))
                remaining = remaining[len("DEFAULT") :]
                continue
            found = _RULE.match(remaining)
            if found is None:
                if not remaining:
                    break
                raise ConfigError(
                    f"ssl.principal.mapping.rules: {remaining!r} is not a rule",
                    hint="use RULE:pattern/replacement/, followed by L or U for lower or upper case, or DEFAULT",
                )
            pattern = _pattern(found[1])
            self._rules.append(_Rule(pattern, _template(found[2], pattern.groups), found[3]))
            remaining = remaining[found.end() :]

    def name_of(self, distinguished: str) -> str:
        """Return the principal's name without `User:`. ValueError if no rule matches."""
        for rule in self._rules:
            if rule.pattern is None:
                return distinguished
            found = rule.pattern.fullmatch(distinguished)
            if found is not None:
                name = found.expand(rule.replacement)
                return name.lower() if rule.case == "L" else name.upper() if rule.case == "U" else name
        raise ValueError(f"no rule of ssl.principal.mapping.rules matches {ascii(distinguished)}")


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {text!r} is not a valid pattern: {error}") from None


def _template(text: str, groups: int) -> str:
    """Return a rule's replacement for `Match.expand`: `$1` is a group, or text if the pattern has no such group."""

    def converted(found: re.Match[str]) -> str:
        number, plain = found.groups()
        if number is None:
            return plain.replace("\\", r"\\")
        return rf"\g<{number}>" if int(number) <= groups else f"${number}"

    return re.sub(r"\$(\d)|\\(.)", converted, text, flags=re.DOTALL)


def _set_versions(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in _VERSIONS]
    if unknown or not names:
        raise ConfigError(f"ssl.enabled.protocols={','.join(names)}", hint=f"use {', '.join(_VERSIONS)}")
    context.minimum_version = min(_VERSIONS[name] for name in names)
    context.maximum_version = max(_VERSIONS[name] for name in names)


def _load_key(context: ssl.SSLContext, setting: Callable[[str], Any]) -> None:
    password = setting("ssl.key.password")
    location = setting("ssl.keystore.location")
    if location:
        load = partial(context.load_cert_chain, location, password=password or _no_password)
        call_openssl("ssl.keystore.location", load, path=location)
        return
    key, chain = setting("ssl.keystore.key"), setting("ssl.keystore.certificate.chain")
    if not key or not chain:
        raise ConfigError(
            "a TLS listener has no private key",
            hint="set ssl.keystore.location to a PEM file with the private key and the certificates",
        )
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # mode 600; OpenSSL loads a key only from a file
        file.write(f"{key}\n{chain}\n")
        file.flush()
        load = partial(context.load_cert_chain, file.name, password=password or _no_password)
        call_openssl("ssl.keystore.key", load)


def _no_password() -> str:
    raise ConfigError("the private key needs a password", hint="set ssl.key.password")


def call_openssl(name: str, call: Callable[..., object], *args: object, path: str | None = None) -> None:
    """Call `call` and name the setting in its errors."""
    try:
        call(*args)
    except KafkalogError:
        raise
    except ssl.SSLError as error:
        reason = getattr(error, "reason", None) or str(error)
        hint = "use PEM; `openssl pkcs12 -in STORE -nodes -out FILE` converts a Java store"
        raise ConfigError(f"{name}: OpenSSL rejects it: {reason}", path=path, hint=hint) from None
    except OSError as error:
        raise StorageError.from_os(error, f"read {name}", path=path and os.fspath(path)) from error
