"""Fixtures for pytest: a Kafka server for the whole of a test session.

In a `conftest.py`:

    pytest_plugins = ["kafkalog.pytest_plugin"]

and a test that has an argument `kafka_server` gets a running `kafkalog.testing.KafkaServer`. What it is set to and
which topics it has from the start a project says by fixtures of its own named `kafka_server_settings` (a dict),
`kafka_server_topics` (names, or names and numbers of partitions) and `kafka_server_users` (a dict of passwords), all of
the session. Under pytest-xdist each worker has a server of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from kafkalog.testing import KafkaServer
from kafkalog.testing import kafka_server as running


@pytest.fixture(scope="session")
def kafka_server_settings() -> Mapping[str, Any]:
    """Settings over the defaults; none."""
    return {}


@pytest.fixture(scope="session")
def kafka_server_topics() -> Mapping[str, int] | Iterable[str]:
    """Topics from the start; none."""
    return ()


@pytest.fixture(scope="session")
def kafka_server_users() -> Mapping[str, str]:
    """Passwords of users from the start; none."""
    return {}


@pytest.fixture(scope="session")
def kafka_server(
    kafka_server_settings: Mapping[str, Any],
    kafka_server_topics: Mapping[str, int] | Iterable[str],
    kafka_server_users: Mapping[str, str],
) -> Iterator[KafkaServer]:
    """A server that all tests of the session share."""
    with running(topics=kafka_server_topics, settings=kafka_server_settings, users=kafka_server_users) as server:
        yield server
