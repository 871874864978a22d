"""Fixtures for pytest: a Kafka server for a whole test session.

pytest finds them if kafkalog is installed: a test with an argument `kafka_server` gets a running
`kafkalog.testing.KafkaServer`. A project configures it with its own session fixtures named `kafka_server_settings` (a
dict), `kafka_server_topics` (names, or names and numbers of partitions) and `kafka_server_users` (a dict of passwords).
Under pytest-xdist each worker has its own server. `-p no:kafkalog.pytest_plugin` disables them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from kafkalog.testing import KafkaServer
from kafkalog.testing import kafka_server as running


@pytest.fixture(scope="session")
def kafka_server_settings() -> Mapping[str, Any]:
    """Settings that override the defaults; empty."""
    return {}


@pytest.fixture(scope="session")
def kafka_server_topics() -> Mapping[str, int] | Iterable[str]:
    """Topics created at the start; empty."""
    return ()


@pytest.fixture(scope="session")
def kafka_server_users() -> Mapping[str, str]:
    """Passwords of users created at the start; empty."""
    return {}


@pytest.fixture(scope="session")
def kafka_server(
    kafka_server_settings: Mapping[str, Any],
    kafka_server_topics: Mapping[str, int] | Iterable[str],
    kafka_server_users: Mapping[str, str],
) -> Iterator[KafkaServer]:
    """Server that all tests of the session share."""
    with running(topics=kafka_server_topics, settings=kafka_server_settings, users=kafka_server_users) as server:
        yield server
