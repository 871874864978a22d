"""What a follower cannot use of an answer, because it began to follow again meanwhile, is sent again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kafkalog.types import TopicPartition
from tests.server.looping import in_loop
from tests.server.replica.copies import pair_in

T0 = TopicPartition("t", 0)


@in_loop
async def test_offsets_that_moved_are_sent_again_after_an_answer_was_dropped(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        pair.append(T0, b"a", b"b")
        pair.begin(T0)
        leader, own = pair.logs(T0)
        source: Any = await pair._connect()
        fetch = source.fetch

        async def fetch_and_follow_again(*request: Any) -> Any:
            answers = await fetch(*request)
            await pair.fetcher.leave([T0])
            pair.fetcher.follow(pair.own.replicas.find(T0), 0)
            return answers

        try:
            while not pair.is_same(T0):
                await pair.fetcher.fetch_once(source)
            leader.maybe_increment_log_start_offset(1)
            source.fetch = fetch_and_follow_again
            await pair.fetcher.fetch_once(source)
            assert own.log_start_offset == 0
            source.fetch = fetch
            for _ in range(3):
                await pair.fetcher.fetch_once(source)
            assert own.log_start_offset == 1
        finally:
            await source.close()
