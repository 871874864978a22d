"""docs/metrics.md names every metric and every event, and nothing else."""

import re
from pathlib import Path

from kafkalog.hooks import EVENTS
from kafkalog.metrics.definitions import sources

TEXT = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)`.*?\| (\w+) \|", re.MULTILINE)


def test_every_metric_has_its_row() -> None:
    assert {name: kind for name, kind in ROW.findall(TEXT) if name.startswith("kafkalog_")} == {
        one.name: one.kind for one in sources()
    }


def test_every_event_has_its_row() -> None:
    rows = set(re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE))
    assert {name for name in rows if not name.startswith("kafkalog_")} == set(EVENTS)
