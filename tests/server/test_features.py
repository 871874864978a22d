"""Features (KIP-584): what is offered, what a client may change, and that it lasts, as a broker of 4.4.0 answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import CorruptCheckpoint
from kafkalog.server.node.node import Node
from kafkalog.server.settings.features import FEATURES_FILE, SUPPORTED, Features, Update, decide, parse_features
from tests.broker_directory import BOOTSTRAP_FILE, features, format_directory, snapshot_of
from tests.server.nodes import call, node_for
from tests.server.txns.calls import with_node

SOFTWARE = {"client_software_name": "a-client", "client_software_version": "1.2"}
NEW = {
    "group.version": 1, "kraft.version": 1, "metadata.version": 33, "share.version": 2,
    "transaction.version": 2, "eligible.leader.replicas.version": 1,
}  # fmt: skip
FAILED = "The update failed for all features since the following feature had an error: "


async def offered(node: Node, version: int = 5) -> tuple[dict[str, tuple[int, int]], dict[str, int], int]:
    """The supported ranges, the levels in effect, and their epoch."""
    answer = await call(node, "api_versions", version, SOFTWARE)
    supported = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
    finalized = {one.name: one.max_version_level for one in answer.finalized_features}
    assert all(one.min_version_level == one.max_version_level for one in answer.finalized_features)
    return supported, finalized, answer.finalized_features_epoch


async def update(node: Node, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False) -> Any:
    rows = [
        {"feature": name, "max_version_level": level}
        | ({"upgrade_type": kind} if version else {"allow_downgrade": kind > 1})
        for name, level, kind in updates
    ]
    fields = {"timeout": 1000, "feature_updates": rows, **({"validate_only": validate_only} if version else {})}
    return await call(node, "update_features", version, fields)


def test_what_a_new_directory_offers(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        supported, finalized, epoch = await offered(node)
        assert finalized == NEW and epoch >= 0
        assert supported == {name: tuple(levels) for name, levels in SUPPORTED.items()}
        assert await offered(node, 4) == (supported, finalized, epoch)
        # clients before KAFKA-17011 cannot read a range that begins at 0
        assert await offered(node, 3) == ({"metadata.version": (7, 33)}, finalized, epoch)

    with_node(tmp_path, body)


NO_UPGRADE_TYPE = "The controller does not support the given upgrade type."
ONLY_DOWN_IF_ASKED = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (("nothing", 1, 1), "Local controller 1 does not support this feature."),
        (("", 1, 1), "Local controller 1 does not support this feature."),
        (("transaction.version", 3, 1), "Local controller 1 only supports versions 0-2"),
        (("transaction.version", 1, 1), ONLY_DOWN_IF_ASKED),
        (("transaction.version", -1, 1), "A feature version cannot be less than 0."),
        (("transaction.version", 1, 0), NO_UPGRADE_TYPE),
        (("transaction.version", 1, 9), NO_UPGRADE_TYPE),
        (("metadata.version", 3, 3), "Local controller 1 only supports versions 7-33"),
        (("kraft.version", 0, 3), "Can't downgrade the version of this feature."),
        (("kraft.version", 2, 1), "Local controller 1 only supports versions 0-1"),
    ],
)
def test_refusals(asked: tuple[str, int, int], reason: str) -> None:
    """In the words of a controller of 4.4.0."""
    name, level, _ = asked
    assert decide(NEW, Update(*asked), 1) == f"Invalid update version {level} for feature {name}. {reason}"


def test_the_metadata_version_never_falls() -> None:
    begins = "Unsupported metadata.version downgrade from 33 to 25."
    unsafe = "Unsafe metadata downgrade is not supported in this version."
    safe = "Refusing to perform the requested downgrade because it might delete metadata information."
    assert decide(NEW, Update("metadata.version", 25, 3), 1) == f"{begins} {unsafe}"
    assert decide(NEW, Update("metadata.version", 25, 2), 1) == f"{begins} {safe}"


def test_no_step_to_a_newer_level_is_a_downgrade() -> None:
    reason = "Invalid update version 2 for feature transaction.version. Can't downgrade to a newer version."
    for kind in (2, 3):
        assert decide({"transaction.version": 1}, Update("transaction.version", 2, kind), 1) == reason
    assert decide({"metadata.version": 20}, Update("metadata.version", 33, 1), 1) is None
    assert decide(NEW, Update("transaction.version", 2, 2), 1) is None


def test_updates_of_every_version(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        for version in (0, 1, 2):
            answer = await update(node, ("nothing", 1, 1), version=version)
            why = decide(NEW, Update("nothing", 1, 1), node.node_id)
            assert (answer.error_code, answer.error_message) == (95, f"{FAILED}{why}")
            assert (await update(node, version=version))[1:3] == (0, None)
        assert (await update(node, ("transaction.version", 1, 2), version=0)).error_code == 95
        both = await update(node, ("transaction.version", 1, 2), ("group.version", 0, 2), version=1)
        assert [tuple(one) for one in both.results] == [
            ("transaction.version", 0, "NONE"), ("group.version", 0, "NONE"),
        ]  # fmt: skip
        others = {name: level for name, level in NEW.items() if name != "group.version"}
        assert (await offered(node))[1] == {**others, "transaction.version": 1}

    with_node(tmp_path, body)


def test_updates_are_all_or_none_and_last(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        before = await offered(node)
        assert (await update(node, ("transaction.version", 1, 2), ("nothing", 1, 1))).error_code == 95
        assert (await update(node, ("transaction.version", 1, 2), validate_only=True)).error_code == 0
        assert await offered(node) == before
        assert not (tmp_path / FEATURES_FILE).exists()
        assert (await update(node, ("transaction.version", 1, 2), ("transaction.version", 0, 2))).error_code == 0
        assert (await offered(node))[1].get("transaction.version") is None
        assert (await offered(node))[2] == before[2] + 2
        assert (await update(node)).error_code == 0

    async def again(node: Node) -> None:
        assert "transaction.version" not in (await offered(node))[1]
        assert (await update(node, ("transaction.version", 2, 1))).error_code == 0
        assert (await offered(node))[1] == NEW

    with_node(tmp_path, body)
    with_node(tmp_path, again)


def test_a_brokers_levels_apply_until_a_client_changes_one(tmp_path: Path) -> None:
    """Afterwards the file counts, also where the broker has set other levels since."""
    format_directory(tmp_path, level=25)

    async def body(node: Node) -> None:
        assert (await offered(node))[1] == {"kraft.version": 1, "metadata.version": 25}
        assert (await update(node, ("transaction.version", 2, 1))).error_code == 0

    async def again(node: Node) -> None:
        assert (await offered(node))[1] == {"kraft.version": 1, "metadata.version": 25, "transaction.version": 2}

    with_node(tmp_path, body)
    (tmp_path / BOOTSTRAP_FILE).write_bytes(snapshot_of(features(29)))
    with_node(tmp_path, again)


def test_consumer_groups_need_their_feature(tmp_path: Path) -> None:
    """KIP-848: without `group.version` both calls answer UNSUPPORTED_VERSION."""

    async def body(node: Node) -> None:
        assert (await update(node, ("group.version", 0, 2))).error_code == 0
        heartbeat = {
            "group_id": "c", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000, "topic_partitions": [],
            "subscribed_topic_names": ["t"],
        }  # fmt: skip
        assert (await call(node, "consumer_group_heartbeat", 1, heartbeat)).error_code == 35
        described = {"group_ids": ["c"], "include_authorized_operations": False}
        assert (await call(node, "consumer_group_describe", 1, described)).groups[0].error_code == 35
        assert (await update(node, ("group.version", 1, 1))).error_code == 0
        assert (await call(node, "consumer_group_heartbeat", 1, heartbeat)).error_code == 0

    with_node(tmp_path, body)


def test_share_groups_need_their_feature(tmp_path: Path) -> None:
    """KIP-932: without `share.version` heartbeats, fetches, acknowledgements and descriptions answer 35."""

    async def body(node: Node) -> None:
        assert (await update(node, ("share.version", 0, 2))).error_code == 0
        member = {"group_id": "s", "member_id": "m"}
        heartbeat = {**member, "member_epoch": 0, "subscribed_topic_names": ["t"]}
        assert (await call(node, "share_group_heartbeat", 1, heartbeat)).error_code == 35
        fetch = {
            **member, "share_session_epoch": 0, "max_wait": 0, "min_bytes": 0, "max_bytes": 1, "max_records": 1,
            "batch_size": 1, "topics": [], "forgotten_topics_data": [],
        }  # fmt: skip
        assert (await call(node, "share_fetch", 1, fetch)).error_code == 35
        acknowledge = {**member, "share_session_epoch": 1, "topics": []}
        assert (await call(node, "share_acknowledge", 1, acknowledge)).error_code == 35
        described = {"group_ids": ["s"], "include_authorized_operations": False}
        assert (await call(node, "share_group_describe", 1, described)).groups[0].error_code == 35
        assert (await update(node, ("share.version", 2, 1))).error_code == 0
        assert (await call(node, "share_group_heartbeat", 1, heartbeat)).error_code == 0

    with_node(tmp_path, body)


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"version": 2}', '{"version": 1, "epoch": -1, "levels": {}}',
     '{"version": 1, "epoch": true, "levels": {}}',
     '{"version": 1, "epoch": 1, "levels": {"transaction.version": "2"}}', '{"version": 1, "epoch": 1, "levels": []}',
     '{"version": 1, "epoch": 1, "levels": {"transaction.version": 0}}', "[" * 50_000],
    ids=lambda content: content[:60],
)  # fmt: skip
def test_a_damaged_file(tmp_path: Path, content: str) -> None:
    (tmp_path / FEATURES_FILE).write_text(content)

    async def start() -> None:
        async with node_for(tmp_path):
            pass

    with pytest.raises(CorruptCheckpoint, match="the features are damaged") as caught:
        asyncio.run(start())
    assert caught.value.path == str(tmp_path / FEATURES_FILE)


def test_a_later_version_s_levels_are_not_offered() -> None:
    found = parse_features({"version": 1, "epoch": 7, "levels": {"transaction.version": 9, "streams.version": 1}})
    assert found == Features({"transaction.version": 2}, 7)
