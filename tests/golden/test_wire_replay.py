"""The recorded requests, sent to a server of ours on a fresh directory: it answers as the broker did.

Error codes, shapes and values are compared, except those of the moment (times, ports) and those that a broker chooses;
where ours are others on purpose a row of docs/clients.md says why.
"""

import asyncio
from pathlib import Path

import pytest

from kafkalog.server.serving import serving
from kafkalog.server.settings.config import ServerConfig
from tests.server.differences import Row, read_rows, unexplained_differences
from tests.server.replay import SETTINGS, Replay, prepare_topic, read_scenario
from tests.wire_cases import FILES, each_file

pytestmark = pytest.mark.golden


async def played(path: Path, directory: Path) -> Replay:
    recorded = read_scenario(path)
    async with serving([str(directory)], ServerConfig(SETTINGS)) as server:
        (port,) = server.ports.values()
        await prepare_topic(recorded, port)
        replay = Replay(recorded, port)
        await replay.run()
    return replay


@pytest.mark.in_memory
@each_file
def test_the_answers_are_those_of_the_broker(path: Path, tmp_path: Path) -> None:
    replay = asyncio.run(played(path, tmp_path / "data"))
    assert replay.compared > 0
    wrong = unexplained_differences(replay.differences, read_rows())
    assert not wrong, "\n".join(map(str, wrong[:40]))


@pytest.mark.parametrize("row", read_rows(), ids=str)
def test_a_row_says_why(row: Row) -> None:
    """A row names calls that there are, scenarios that were recorded or may be, and a reason."""
    assert row.why
    assert row.first <= row.last
    if FILES:
        names = [path.name.removesuffix(".json.gz") for path in FILES]
        assert any(row.covers(name) for name in names), f"no recorded scenario is {row.scenarios}"
