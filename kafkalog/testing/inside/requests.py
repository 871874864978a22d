"""One request as rules and recorders see it: its API, client, topics, partitions, groups and offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkalog.errors import MalformedRequest
from kafkalog.server.apis.dispatch import offered
from kafkalog.server.requests.context import Connection, RequestContext
from kafkalog.server.wire.header import read_header
from kafkalog.server.wire.reader import request_reader
from kafkalog.server.wire.versions import API_VERSIONS, APIS, FETCH, PRODUCE, SHARE_FETCH

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.versions import Api

_TOPIC_LISTS: Final = ("topics", "topic_data", "topic_partitions", "v3_and_below_topics")
_TOPIC_NAMES: Final = ("name", "topic", "topic_name")
_PARTITION_LISTS: Final = ("partitions", "partition_data", "partition_indexes")
_PARTITIONS: Final = ("partition", "partition_index", "index")
_OFFSETS: Final = ("committed_offset", "fetch_offset")
_NESTED: Final = ("groups", "markers", "transactions")
_NAME_LISTS: Final = ("topic_names", "subscribed_topic_names")
_GROUPS: Final = ("groups", "group_ids", "groups_names")
_TRANSACTIONS: Final = ("transactional_id", "v3_and_below_transactional_id")
_FIND_COORDINATOR: Final = 10
_OF_GROUPS, _OF_TRANSACTIONS = 0, 1  # key types of FindCoordinator
_RESOURCE_TOPIC: Final = 2
FLEXIBLE_PRODUCE: Final = APIS[PRODUCE].first_flexible
PRODUCE_BY_ID: Final = 13
Partitions = dict[str, dict[int, int]]
"""Topic -> partition -> offset of the request, -1 for none."""


class Call:
    """A request that was parsed for rules: its table row, context and body."""

    __slots__ = ("_node", "api", "context", "request")

    def __init__(self, node: Node, api: Api, context: RequestContext, request: Any) -> None:
        self._node = node
        self.api = api
        self.context = context
        self.request = request

    def _session(self) -> Any:
        """Return the fetch session or share session that the request continues, or None."""
        request = self.request
        if self.api.key == FETCH:
            return self._node.replicas.sessions.get(getattr(request, "session_id", 0))
        if self.api.key == SHARE_FETCH and request.share_session_epoch:
            return self._node.shares.sessions.get((request.group_id, request.member_id))
        return None

    def topics(self) -> Partitions:
        """Return the topics that the request names, with partitions and offsets; those of its session, too."""
        found: Partitions = {}
        for message in _messages(self.request):
            for name in _NAME_LISTS:
                for topic in getattr(message, name, None) or ():
                    found.setdefault(topic, {})
            for name in _TOPIC_LISTS:
                for row in getattr(message, name, None) or ():
                    self._add(found, row)
            for row in getattr(message, "resources", None) or ():
                if row.resource_type == _RESOURCE_TOPIC:
                    found.setdefault(row.resource_name, {})
        session = self._session()
        for topic, index in () if session is None else tuple(session.partitions):
            named = self._name_of(topic)
            if named is not None:
                known = session.partitions[topic, index]
                found.setdefault(named, {}).setdefault(index, getattr(known, "fetch_offset", -1))
        return found

    def groups(self) -> list[str]:
        """Return the groups that the request names."""
        found = [message.group_id for message in _messages(self.request) if hasattr(message, "group_id")]
        for name in _GROUPS:
            found += [one for one in getattr(self.request, name, None) or () if isinstance(one, str)]
        return [*found, *self._sought(_OF_GROUPS)]

    def transactional_ids(self) -> list[str]:
        """Return the transactional ids that the request names."""
        found = [getattr(message, name, None) for message in _messages(self.request) for name in _TRANSACTIONS]
        found += getattr(self.request, "transactional_ids", None) or ()
        return [one for one in (*found, *self._sought(_OF_TRANSACTIONS)) if one]

    def _sought(self, key_type: int) -> list[str]:
        """Return the names whose coordinator a FindCoordinator asks for."""
        if self.api.key != _FIND_COORDINATOR or getattr(self.request, "key_type", _OF_GROUPS) != key_type:
            return []
        keys = getattr(self.request, "coordinator_keys", None) or (getattr(self.request, "key", None),)
        return [one for one in keys if one]

    def _add(self, found: Partitions, row: Any) -> None:
        name = row if isinstance(row, str) else self._name_of(getattr(row, "topic_id", None))
        name = name or next((value for one in _TOPIC_NAMES if (value := getattr(row, one, None))), None)
        if name is None:
            return
        partitions = found.setdefault(name, {})
        for kind in _PARTITION_LISTS:
            for one in getattr(row, kind, None) or ():
                if isinstance(one, int):
                    partitions.setdefault(one, -1)
                    continue
                index = next((getattr(one, field) for field in _PARTITIONS if hasattr(one, field)), None)
                if index is not None:
                    partitions[index] = next((getattr(one, field) for field in _OFFSETS if hasattr(one, field)), -1)

    def _name_of(self, topic: UUID | int | str | None) -> str | None:
        if topic is None or isinstance(topic, str):
            return topic
        known = self._node.topics.by_id(UUID(int=topic) if isinstance(topic, int) else topic)
        return None if known is None else known.name


def read_call(node: Node, connection: Connection, frame: bytearray) -> Call | None:
    """Parse a request, or return None for one that the server refuses: it is then handled as if without rules."""
    try:
        api_key, version, correlation_id, client_id, position = read_header(frame)
        api = offered(node.quorum.replica_set is not None, node.telemetry is not None).get(api_key)
        if api is None or not api.serves(version):
            return None
        request = None if api_key == API_VERSIONS else request_reader(api_key, version).read(frame, position)
    except MalformedRequest:
        return None
    context = RequestContext(api_key, version, correlation_id, client_id or "", connection, len(frame))
    return Call(node, api, context, request)


def _messages(request: Any) -> Iterator[Any]:
    """Yield the request's body and the messages for several groups or transactions in it."""
    if request is None:
        return
    yield request
    for name in _NESTED:
        yield from (one for one in getattr(request, name, None) or () if hasattr(one, "_fields"))
