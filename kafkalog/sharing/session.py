"""A share session: what a member fetches from one node, and acknowledges there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kafkalog.queue.worker import RENEW
from kafkalog.server.client.errors import PeerRefused
from kafkalog.sharing.fetched import Range
from kafkalog.sharing.links import SHARE_ACKNOWLEDGE, SHARE_FETCH

if TYPE_CHECKING:
    from kafkalog.sharing.links import Link

_FINAL: Final = -1
_MOST_BYTES: Final = 50 << 20
_MOST_RECORDS: Final = 2**31 - 1
_EXACT: Final = 1
"""Mode of a fetch that acquires no more records than asked for."""
_WITH_RENEWAL: Final = 2
"""First version of ShareAcknowledge that can renew locks."""


class NodeSession:
    """A session with one node: `generation` grows when it ends, and what it had acquired is lost to the member."""

    def __init__(self, group: str, member: str) -> None:
        self.generation = 0
        self._names = {"group_id": group, "member_id": member}
        self._epoch = 0
        self._partitions: set[int] = set()

    @property
    def is_begun(self) -> bool:
        """True if the node has a session of the member."""
        return self._epoch > 0

    def end(self) -> None:
        """Forget the session: the next fetch begins another one."""
        self.generation += 1
        self._epoch = 0
        self._partitions = set()

    async def fetch(
        self, link: Link, topic_id: UUID, partitions: Collection[int], max_records: int, wait_ms: int
    ) -> Any:
        """Return the answer to a fetch from these partitions of a topic. PeerError, with the session ended."""
        wanted, most = set(partitions), min(max_records, _MOST_RECORDS)
        tree = {
            **self._names, "share_session_epoch": self._epoch, "max_wait": wait_ms, "min_bytes": 1,
            "max_bytes": _MOST_BYTES, "max_records": most, "batch_size": most,
            "share_acquire_mode": _EXACT, "is_renew_ack": False,
            "topics": _topics(topic_id, dict.fromkeys(sorted(wanted - self._partitions), ())),
            "forgotten_topics_data": _forgotten(topic_id, self._partitions - wanted),
        }  # fmt: skip
        answer = await self._ask(link, SHARE_FETCH, tree, wait_ms)
        if not answer.error_code:
            self._partitions = wanted
        return answer

    async def acknowledge(
        self, link: Link, topic_id: UUID, kind: int, ranges: Mapping[int, Iterable[Range]]
    ) -> Any:
        """Return the answer to acknowledgements of one kind. PeerError, PeerRefused for an old broker and RENEW."""
        if kind == RENEW and link.version_of(SHARE_ACKNOWLEDGE) < _WITH_RENEWAL:
            raise PeerRefused("it cannot renew locks", peer=link.peer, hint="finish the work within the lock's time")
        tree = {
            **self._names, "share_session_epoch": self._epoch, "is_renew_ack": kind == RENEW,
            "topics": _topics(topic_id, {
                number: [
                    {"first_offset": first, "last_offset": last, "acknowledge_types": (kind,)} for first, last in rows
                ]
                for number, rows in ranges.items()
            }),
        }  # fmt: skip
        return await self._ask(link, SHARE_ACKNOWLEDGE, tree)

    async def close(self, link: Link) -> None:
        """End the session at the node, which releases what it had acquired. PeerError."""
        self._epoch = _FINAL
        await self._ask(link, SHARE_ACKNOWLEDGE, {**self._names, "share_session_epoch": _FINAL, "topics": ()})
        self.end()

    async def _ask(self, link: Link, api_key: int, tree: Mapping[str, object], wait_ms: int = 0) -> Any:
        timeout_ms = None if not wait_ms else wait_ms + 30_000
        try:
            answer = await link.request(api_key, tree, timeout_ms=timeout_ms)
        except BaseException:  # also a Ctrl-C: the node may have counted the request
            self.end()
            raise
        if answer.error_code:
            self.end()
        else:
            self._epoch = 1 if self._epoch == 2**31 - 1 else self._epoch + 1
        return answer


def _topics(topic_id: UUID, batches: Mapping[int, Iterable[object]]) -> list[dict[str, object]]:
    rows = [
        {"partition_index": number, "acknowledgement_batches": list(given)} for number, given in batches.items()
    ]
    return [{"topic_id": topic_id, "partitions": rows}] if rows else []


def _forgotten(topic_id: UUID, partitions: Collection[int]) -> list[dict[str, object]]:
    return [{"topic_id": topic_id, "partitions": sorted(partitions)}] if partitions else []
