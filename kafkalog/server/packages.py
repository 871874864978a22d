"""What a server needs that kafkalog itself does not: the extra `server`."""

from __future__ import annotations

from importlib.util import find_spec

from kafkalog.errors import MissingPackage


def check_packages() -> None:
    """Return where what reads and writes Kafka's messages is installed; MissingPackage otherwise."""
    if find_spec("kio") is None:
        raise MissingPackage(
            "kio, which has the messages of Kafka's protocol, is not installed", hint="pip install 'kafkalog[server]'"
        )
