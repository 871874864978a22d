"""The set of replicas, as the setting names it."""

from __future__ import annotations

import pytest

from kafkalog.errors import ConfigError
from kafkalog.server.quorum.replica_set import Member, check_member, parse_replicas
from kafkalog.server.settings.config import ServerConfig


def test_a_set_has_its_members_by_number() -> None:
    found = parse_replicas(["3@c:9094", " 1@[::1]:9092 ", "2@b.example:9093"])
    assert found is not None
    assert found.ids == (1, 2, 3)
    assert found[1] == Member(1, "::1", 9092)
    assert found.others(2) == (1, 3)
    assert (3 in found, 4 in found, len(found)) == (True, False, 3)
    assert [found.is_majority(nodes) for nodes in ([1], [1, 2], [1, 9], [1, 2, 3])] == [False, True, False, True]


def test_without_the_setting_there_is_no_set() -> None:
    assert parse_replicas([]) is None
    assert ServerConfig()["kafkalog.replicas"] == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1@a", "is not ID@HOST:PORT"),
        ("a:9092", "is not ID@HOST:PORT"),
        ("-1@a:9092", "is not ID@HOST:PORT"),
        ("1@a:0", "is not ID@HOST:PORT"),
        ("1@a:65536", "is not ID@HOST:PORT"),
        ("2147483648@a:9092", "is not ID@HOST:PORT"),
        ("1@a:1,1@b:1", "the same node twice"),
        ("1@a:1,2@a:1", "the same address twice"),
    ],
)
def test_what_names_no_set_is_refused_with_the_settings(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ServerConfig({"kafkalog.replicas": text})


def test_a_node_has_to_be_one_of_its_set() -> None:
    found = parse_replicas(["1@a:1", "2@b:1"])
    assert found is not None
    check_member(found, 2)
    with pytest.raises(ConfigError, match="this is node 4, but kafkalog.replicas names 1, 2"):
        check_member(found, 4)
