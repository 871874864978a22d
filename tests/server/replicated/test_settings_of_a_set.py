"""Users, ACLs, quotas and settings that the leader takes are those of all nodes."""

from __future__ import annotations

from pathlib import Path

from kafkalog.server.quorum.metadata import content_of, read_content
from kafkalog.server.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafkalog.server.security.scram import keys_of_password
from kafkalog.server.security.state import SecurityState
from kafkalog.server.settings.kinds import CLIENT_METRICS, GROUP
from tests.server.looping import in_loop
from tests.server.replica.copies import until
from tests.server.replicated.test_following_leader import set_of_three

ENTRY = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", Operation.READ, Permission.ALLOW)
QUOTA = {(("user", "a"),): {"producer_byte_rate": 1000.0}}
USERS = {"a": {"SCRAM-SHA-256": keys_of_password("SCRAM-SHA-256", "secret", 4096)}}


@in_loop
async def test_what_the_leader_takes_is_taken_by_all(tmp_path: Path) -> None:
    async with set_of_three(tmp_path) as servers:
        await servers[1].node.quorum.promote()
        first = servers[1].node
        state = SecurityState((ENTRY,), QUOTA, USERS)
        await first.credentials.file.change(first.run, lambda _: state)
        await first.dynamic.change("", {"log.retention.ms": "123456"})
        await first.dynamic.change_kept(GROUP, "g", {"consumer.session.timeout.ms": "50000"})
        await first.dynamic.change_kept(CLIENT_METRICS, "m", {"interval.ms": "1000"})
        await until(lambda: len({str(read_content(content_of(one.node))[:3]) for one in servers.values()}) == 1)
        second = servers[2].node
        assert second.credentials.file.state == state
        assert second.config["log.retention.ms"] == 123456
        assert second.dynamic.kept(CLIENT_METRICS, "m") == {"interval.ms": "1000"}
        assert second.credentials.keys_of("a", "SCRAM-SHA-256") == USERS["a"]["SCRAM-SHA-256"]

        await second.quorum.promote()  # and what the next one undoes stays undone
        await second.credentials.file.change(second.run, lambda _: SecurityState())
        await second.dynamic.change("", {"log.retention.ms": None})
        await until(lambda: not first.credentials.file.state.acls and not first.dynamic.everywhere)
