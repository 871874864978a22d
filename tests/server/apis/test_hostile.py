"""Every call with values that no client sends: an answer or a closed connection, never a traceback."""

import asyncio
import logging
from pathlib import Path

import pytest

import kafkalog
from kafkalog.server.apis.dispatch import dispatch, offered
from tests.server.hostile import Hostile
from tests.server.nodes import connection_for, node_for

COUNT = 700


@pytest.mark.parametrize("seed", range(3))
def test_every_call_answers_whatever_it_is_asked(
    tmp_path: Path, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("t", partitions=2)
        dirs["t", 0].append(b"hello")
    data = next((tmp_path / "t-0").glob("*.log")).read_bytes()
    batch = data[: int.from_bytes(data[8:12], "big") + 12]

    async def run() -> None:
        async with node_for(tmp_path, auto_create_topics_enable=False) as node:
            topic = node.topics.get("t")
            assert topic is not None
            hostile = Hostile(seed, [batch], [topic.id.bytes])
            apis = list(offered().values())
            waiting: set[asyncio.Task[object]] = set()
            for _ in range(COUNT):
                api = hostile.random.choice(apis)
                version = hostile.random.randint(max(api.oldest, api.first_served), api.newest)
                frame = hostile.request(api, version)
                if hostile.random.random() < 0.1:
                    del frame[hostile.random.randint(0, len(frame)) :]
                waiting.add(asyncio.ensure_future(dispatch(node, connection_for(), frame)))
                done, waiting = await asyncio.wait(waiting, timeout=0.001)
                for task in done:
                    task.result()
            for task in waiting:
                task.cancel()
            if waiting:
                await asyncio.wait(waiting)

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert not [record.getMessage() for record in caplog.records if record.exc_info]
