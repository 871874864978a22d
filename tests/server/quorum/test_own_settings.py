"""Settings that each node of a replica set has for itself."""

from __future__ import annotations

from pathlib import Path

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.node.node import Node
from kafkalog.server.settings.kinds import BROKER, BROKER_LOGGER
from tests.server.looping import in_loop
from tests.server.nodes import call
from tests.server.quorum.sets import set_of


@in_loop
async def test_a_node_changes_its_own_settings_whoever_leads(tmp_path: Path) -> None:
    """A broker checks its own settings itself too, and knows the loggers of no other one."""

    async def alter(node: Node, kind: int, name: str, setting: str, value: str | None) -> tuple[int, str]:
        change = {"name": setting, "config_operation": 0 if value else 1, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        answer = await call(node, "incremental_alter_configs", 1, {"resources": [resource], "validate_only": False})
        return answer.responses[0].error_code, answer.responses[0].error_message or ""

    async with set_of(tmp_path) as nodes:
        await nodes.promote(2)
        assert await alter(nodes[1], BROKER, "1", "max.connections", "77") == (ErrorCode.NONE, "")
        assert [nodes[one].config["max.connections"] == 77 for one in (1, 2, 3)] == [True, False, False]
        assert await alter(nodes[2], BROKER, "2", "max.connections", "78") == (ErrorCode.NONE, "")
        code, message = await alter(nodes[1], BROKER, "2", "max.connections", "79")
        assert code == ErrorCode.INVALID_REQUEST and message.startswith("Unexpected broker id, expected 1")
        assert await alter(nodes[1], BROKER_LOGGER, "1", "kafkalog.server.node.leading", None) == (ErrorCode.NONE, "")
        assert (await alter(nodes[1], BROKER, "", "max.connections", "80"))[0] == ErrorCode.NOT_CONTROLLER
