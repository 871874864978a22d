"""Answers of the main process to its workers: clients' requests that they pass on, and the state of transactions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from kafkalog.config.keys import value_text
from kafkalog.errors import IllegalArgument
from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.requests.context import Close, Connection
from kafkalog.server.security.state import format_state
from kafkalog.server.settings.features import features_tree
from kafkalog.server.settings.kinds import GROUP
from kafkalog.server.workers.link import Message
from kafkalog.server.workers.share_calls import CALLS_OF_WORKERS
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_IDS_OF_A_WORKER = 1 << 40


class Answers:
    """Answers the calls of one worker. Only it has the other end of the link, so what it says of a client is true."""

    def __init__(self, find_node: Callable[[], Node], number: int) -> None:
        self._find_node = find_node
        self._number = number

    async def answer(self, name: str, message: Message) -> Message:
        """Return the answer to a call. IllegalArgument for an unknown one."""
        if name == "relay":
            return await self._relay(message)
        if name == "verify":
            return self._verify(message)
        if name in CALLS_OF_WORKERS:
            return await CALLS_OF_WORKERS[name](self._find_node(), message)
        raise IllegalArgument(f"unknown call {name!r}")

    async def _relay(self, message: Message) -> Message:
        """Return the response to a client's request, which is checked here as if the client had connected here."""
        values, node = message.values, self._find_node()
        connection = Connection(
            self._number * _IDS_OF_A_WORKER + values["id"], values["listener"], values["protocol"],
            (values["host"], values["port"]),
        )  # fmt: skip
        connection.principal, connection.is_authenticated = values["principal"], True
        connection.software_name, connection.software_version = values["software"]
        pieces = await dispatch(node, connection, bytearray(message.body))
        mute_ms = max(0, connection.mute_until_ms - node.monotonic_ms()) if connection.mute_until_ms else 0
        if pieces is None or isinstance(pieces, Close):
            return Message({"closes": True, "mute_ms": mute_ms})
        body = b"".join(cast("list[bytes]", pieces))  # an error for ranges of files: calls with some are a worker's own
        return Message({"closes": False, "mute_ms": mute_ms}, body)

    def _verify(self, message: Message) -> Message:
        values = message.values
        keys = [TopicPartition(*one) for one in values["partitions"]]
        codes = self._find_node().transactions.verify(
            values["transactional_id"], values["producer_id"], values["producer_epoch"], keys,
            produce_version=values["version"],
        )  # fmt: skip
        return Message({"codes": [int(codes[key]) for key in keys]})


def state_of(node: Node) -> dict[str, Any]:
    """Return the node's users, ACLs, quotas, features, and settings that can change, its groups' among them."""
    given = node.config.given()
    return {
        "security": json.loads(format_state(node.credentials.file.state)),
        "features": features_tree(node.features.current),
        "groups": node.dynamic.all_kept()[GROUP],
        "settings": {name: value_text(given[name]) for name in given if is_pushed(node, name)},
    }


def is_pushed(node: Node, name: str) -> bool:
    """Return True for a setting that workers take from the main process while they run."""
    return name in node.config and node.config.key(name).dynamic and name not in ("listeners", "cordoned.log.dirs")
