"""The histories themselves: a log that was written from one holds what its rows say."""

from pathlib import Path
from random import Random

import pytest

from kafkalog.records.format import CompressionType
from tests.cleaner.histories import NOW, random_history
from tests.mock_time import MockClock


@pytest.mark.parametrize("seed", range(20))
def test_a_log_holds_the_rows_of_its_history(tmp_path: Path, seed: int) -> None:
    history = random_history(Random(seed))
    with history.written(tmp_path / "t-0", MockClock(NOW)) as log:
        shown = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in log]
        assert shown == [row.shown for row in history.rows]
        committed = [record.offset for record in log.records(isolation="read_committed")]
        assert committed == [row.offset for row in history.committed()]
        assert (log.last_stable_offset, log.end_offset) == (history.stable, history.end)


def test_histories_have_all_that_a_clean_has_to_keep_apart() -> None:
    found = [random_history(Random(seed)) for seed in range(60)]
    rows = [row for history in found for row in history.rows]
    assert {(row.magic, row.codec) for row in rows} >= {
        (magic, codec) for magic in (0, 1, 2) for codec in CompressionType if magic == 2 or codec < 4
    }
    assert {row.value is None for row in rows} == {row.key is None for row in rows} == {True, False}
    assert {marker.commits for history in found for marker in history.markers} == {True, False}
    assert any(history.stable < history.end for history in found), "transactions that are open at the end"
