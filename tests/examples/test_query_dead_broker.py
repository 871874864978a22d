"""examples/query_dead_broker.py: SQL over the data directory of a broker that has stopped."""

from pathlib import Path

import pytest

import kafkalog
from tests import golden_cases
from tests.examples.programs import refused, said

pytest.importorskip("duckdb")

LOGDIR = [case for case in golden_cases.partitions("logdir") if case.topic.startswith("pub-")]
pytestmark = [pytest.mark.golden, pytest.mark.skipif(not LOGDIR, reason="no data directory in the golden capture")]


@pytest.fixture(scope="module")
def data() -> Path:
    """A data directory that a real broker wrote; the program does not change it."""
    return LOGDIR[0].directory.parent


def cells(lines: list[str]) -> list[list[str]]:
    """The values of the table that DuckDB drew, without names, types and the counts that some versions draw below."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    return [row for row in rows[2:] if len(row) == len(rows[0])]


def test_every_topic_is_listed(data: Path) -> None:
    lines = said("query_dead_broker.py", data)
    with kafkalog.open_dirs(data) as dirs:
        assert [line.split(":")[0] for line in lines] == list(dirs.topics)
        for line in lines:
            logs = dirs.logs(line.split(":")[0])
            offsets = sum(log.end_offset - log.start_offset for log in logs)
            assert f": {len(logs)} partition" in line and line.endswith(f" {offsets} offsets")


def test_a_query_sees_all_partitions_and_only_what_was_committed(data: Path) -> None:
    with kafkalog.open_dirs(data) as dirs:
        topics = {topic: dirs.logs(topic) for topic in dirs.topics if topic.startswith("pub-")}
        expected = {
            topic: [len(logs), sum(1 for log in logs for _ in log.records(isolation="read_committed"))]
            for topic, logs in topics.items()
        }
    union = " UNION ALL ".join(
        f"SELECT '{topic}' AS name, count(DISTINCT partition), count(*) FROM \"{topic}\"" for topic in expected
    )
    for name, partitions, records in cells(said("query_dead_broker.py", data, f"{union} ORDER BY name")):
        assert int(records) == expected[name][1]
        assert int(partitions) == expected[name][0] or not int(records) or int(partitions) < expected[name][0]


def test_columns_and_mistakes(data: Path) -> None:
    topic = LOGDIR[0].topic
    count = cells(said("query_dead_broker.py", data, f'SELECT count(*) FROM "{topic}"', "--columns", "offset,value"))
    assert int(count[0][0]) > 0
    assert "Binder Error" in refused("query_dead_broker.py", data, f'SELECT key FROM "{topic}"', "--columns", "value")
    assert "Catalog Error" in refused("query_dead_broker.py", data, "SELECT * FROM nothing")
    assert "does not exist" in refused("query_dead_broker.py", data / "nowhere")
