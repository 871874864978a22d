"""Check of the packages that only a server needs: the extra `server`."""

from __future__ import annotations

from importlib.util import find_spec

from kafkalog.errors import MissingPackage


def check_packages() -> None:
    """Raise MissingPackage unless kio, which defines Kafka's messages, is installed."""
    if find_spec("kio") is None:
        raise MissingPackage(
            "kio, which defines Kafka's protocol messages, is not installed", hint="pip install 'kafkalog[server]'"
        )
