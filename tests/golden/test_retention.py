"""Retention on a broker's own directory, by its own settings: what the real broker left when it ran next."""

import json
import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.tools.retain.directories import retain
from kafkalog.types import TopicPartition
from tests import golden_cases
from tests.golden_cases import Case
from tests.held_store import Held

pytestmark = pytest.mark.golden
LEVEL = "read_uncommitted"


def listed(case: Case, what: str, field: str) -> int | None:
    """What the real broker's admin client listed after its next start."""
    for name in case.expected_with(".json"):
        if name.startswith("listoffsets/"):
            found = json.loads(case.expected_path(name).read_text())[LEVEL][what][field]
            return int(found)
    return None


CRASHED = [case for case in golden_cases.partitions("crash") if listed(case, "earliest", "offset") is not None]


@pytest.mark.skipif(not CRASHED, reason="the capture has no crashed directory with listed offsets")
def test_a_killed_broker_s_directory_starts_where_the_broker_s_next_run_let_it_start(tmp_path: Path) -> None:
    """MGR-14, LOG-39: nothing goes without being asked; then each log starts where the real one does, and is whole."""
    data = tmp_path / "data"
    shutil.copytree(CRASHED[0].directory.parent, data)
    newest = max(listed(case, "max-timestamp", "timestamp") or 0 for case in CRASHED)
    before = {path: path.stat().st_size for path in data.rglob("*") if path.is_file()}
    planned = retain(data, now_ms=newest)
    assert {path: path.stat().st_size for path in data.rglob("*") if path.is_file()} == before
    done = retain(data, now_ms=newest, apply=True)
    assert done.due == planned.due
    touched = {one.path.rpartition("/")[0] for one in done.due}
    for case in CRASHED:
        path = data / case.directory.name
        with kafkalog.open(path) as log:
            assert log.start_offset == listed(case, "earliest", "offset"), case.id
            if str(path) in touched:
                assert log.end_offset == listed(case, "latest", "offset"), case.id
    assert not retain(data, now_ms=newest).due


@pytest.mark.skipif(not CRASHED, reason="the capture has no crashed directory with listed offsets")
def test_a_store_on_a_killed_broker_s_directory_comes_to_the_same(tmp_path: Path) -> None:
    """MGR-14, MGR-15: recovered, then aged by its job, each log has the offsets that the real broker had after both."""
    data = tmp_path / "data"
    shutil.copytree(CRASHED[0].directory.parent, data)
    newest = max(listed(case, "max-timestamp", "timestamp") or 0 for case in CRASHED)
    with Held(data, now_ms=newest) as held:
        held.pass_time(60_000, 1000)
        assert [job.last_error for job in held.dirs.jobs] == [None] * len(held.dirs.jobs)
        for case in CRASHED:
            log = held.dirs[case.topic, int(case.name.rpartition("-")[2])]
            assert log.start_offset == listed(case, "earliest", "offset"), case.id
            assert log.end_offset == listed(case, "latest", "offset"), case.id
    assert kafkalog.verify(data).ok


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in golden_cases.cases("logdir")])
def test_a_store_has_the_broker_s_settings(case: Case, tmp_path: Path) -> None:
    """Topics, ids and settings of a real broker's directory, in both modes."""
    data = tmp_path / "data"
    shutil.copytree(case.path(case.files[0]).parent, data)
    configs = next(case.expected_path(name) for name in case.expected if name.endswith("topic-configs.json"))
    expected = json.loads(configs.read_text())
    with kafkalog.open_dirs(data) as dirs:
        reading = dirs.topics
    with kafkalog.open_dirs(data, "a") as dirs:
        assert dirs.topics == reading
    assert {name: dict(reading[name].settings) for name in expected} == expected
    assert all(topic.topic_id for topic in reading.values())


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in golden_cases.cases("logdir")])
def test_settings_come_from_the_broker_s_metadata(case: Case) -> None:
    """Every topic is known, with the settings that the broker listed for it; the replicas are one."""
    root = case.path(case.files[0]).parent
    known = read_known_topics([str(root)])
    configs = next(case.expected_path(name) for name in case.expected if name.endswith("topic-configs.json"))
    for topic, settings in json.loads(configs.read_text()).items():
        assert known.settings_of(topic) == settings
        assert not known.has_replicas(TopicPartition(topic, 0))
    assert known.settings_of("no-such-topic") is None
