"""asv's results in the repository belong to its commits; asv keeps new ones and makes pages of both. No timing."""

import json
import re
from pathlib import Path

import pytest

from asv_benchmarks.counting import __main__ as command
from asv_benchmarks.counting import history
from asv_benchmarks.counting.base import ROOT, commit_of, git
from asv_benchmarks.counting.callgrind import Counts
from asv_benchmarks.counting.history import RESULTS, History
from asv_benchmarks.counting.kept import KEPT, PAGE
from asv_benchmarks.hot_paths.all import PATHS

RESULT_FILES = sorted(RESULTS.glob("*/*-existing-python.json"))
PATH = "crc of 100 bytes"


@pytest.fixture
def whole_history() -> None:
    """Skip where there is no history to look into."""
    if git("rev-parse", "HEAD") is None:
        pytest.skip("this is no clone of the repository, or git is not installed")
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the clone is shallow")


@pytest.fixture
def needs_asv() -> None:
    """Skip where asv cannot run."""
    if (reason := history.unavailable()) is not None:
        pytest.skip(reason)


def is_behind_head(commit: str) -> bool:
    return git("merge-base", "--is-ancestor", commit, "HEAD") is not None


@pytest.mark.usefixtures("whole_history")
def test_results_in_the_repository_name_commits_of_its_history() -> None:
    named = {json.loads(file.read_text())["commit_hash"]: file.name for file in RESULT_FILES}
    named[json.loads(KEPT.read_text())["commit"]] = KEPT.name
    named[re.findall(r"^Commit (\w+), ", PAGE.read_text(), re.MULTILINE)[0]] = PAGE.name
    assert RESULT_FILES
    assert [name for commit, name in named.items() if not is_behind_head(commit)] == []
    assert {commit[:8] for commit in named} == {file.name[:8] for file in RESULT_FILES}


def test_a_result_has_a_count_for_each_hot_path_and_times() -> None:
    for file in RESULT_FILES:
        results = json.loads(file.read_text())["results"]
        counts, (names,) = results["bench_hot_paths.Instructions.track_instructions"][:2]
        assert {name[1:-1] for name in names} == set(PATHS)
        assert all(count > 0 for count in counts)
        timed = [name for name in results if name.endswith("time_once")]
        assert timed and all(any(time == time for time in results[name][0]) for name in timed)


@pytest.mark.usefixtures("whole_history", "needs_asv")
def test_asv_makes_pages_of_the_results_in_the_repository(tmp_path: Path) -> None:
    kept = History(tmp_path)
    kept.publish()
    assert (kept.pages / "index.html").is_file()
    assert kept.points() >= len(PATHS)
    commits = json.loads((kept.pages / "index.json").read_text())["revision_to_hash"].values()
    assert set(commits) >= {json.loads(file.read_text())["commit_hash"] for file in RESULT_FILES}


@pytest.mark.slow
@pytest.mark.usefixtures("whole_history", "needs_asv")
def test_asv_compares_two_commits_and_keeps_both_results(tmp_path: Path) -> None:
    commits = [str(commit_of(name)) for name in ("HEAD^1", "HEAD")]
    new = History(tmp_path)
    before = tuple(RESULTS.rglob("*"))
    assert new.add(commits, {one: {PATH: 1000 * (n + 1)} for n, one in enumerate(commits)}, timed=[PATH]) == []
    for number, commit in enumerate(commits):
        found = json.loads(new.file(commit).read_text())
        assert found["commit_hash"] == commit
        assert (number + 1) * 1000 in found["results"]["bench_hot_paths.Instructions.track_instructions"][0]
        assert any(time > 0 for time in found["results"]["bench_hot_paths.Checksums.time_once"][0])
    assert any("crc of 100 bytes" in line for line in new.changes())  # twice as many instructions
    new.publish()
    assert new.points() > len(PATHS)
    assert tuple(RESULTS.rglob("*")) == before


def test_a_benchmark_without_a_value_is_named(tmp_path: Path) -> None:
    new = History(tmp_path)
    assert new._failed("0" * 40) == ["all"]
    new.file("0" * 40).parent.mkdir()
    results = {"good": [[1.0, float("nan")], []], "failed": [None, []], "half": [[1.0, None], []]}
    new.file("0" * 40).write_text(json.dumps({"results": results}))
    assert new._failed("0" * 40) == ["failed", "half"]


@pytest.mark.parametrize(("failed", "status"), [([], 0), (["bench.time_once"], 1)])
def test_a_failed_benchmark_ends_with_1_and_a_slow_one_does_not(
    failed: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def add(self: History, commits: list[str], counts: object) -> list[str]:
        self.log.write_text("PERFORMANCE DECREASED.\n| + | 1 | 2 | 2.00 | bench.time_once |\n")
        return failed

    (tmp_path / "build").mkdir()
    monkeypatch.setattr(history, "ROOT", tmp_path)
    monkeypatch.setattr(history, "STORE", tmp_path / "build")
    monkeypatch.setattr(history, "unavailable", lambda: None)
    monkeypatch.setattr(History, "add", add)
    monkeypatch.setattr(History, "publish", lambda self: None)
    assert history.keep("a" * 40, {}) == status
    said = capsys.readouterr().out
    assert "| + | 1 | 2 | 2.00 | bench.time_once |" in said and ("has no result" in said) == bool(failed)


@pytest.mark.parametrize("changed", [False, True])
def test_the_counts_of_a_comparison_go_to_asv(changed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of this tree go under the name of HEAD only if it is HEAD; saved ones go there later."""
    kept = []
    monkeypatch.setattr(command, "unavailable", lambda: None)
    monkeypatch.setattr(command, "commit_of", lambda name: name)
    monkeypatch.setattr(command, "choose_base", lambda: ("base", "the last release"))
    monkeypatch.setattr(command, "shares_modules", lambda commit: True)
    monkeypatch.setattr(command, "make_base", lambda commit: Path(commit))
    monkeypatch.setattr(command, "is_changed", lambda: changed)
    monkeypatch.setattr(
        command, "counted", lambda tree, profile, names=(): Counts({PATH: 100 if tree == ROOT else 101})
    )
    monkeypatch.setattr(history, "keep", lambda base, counts: kept.append((base, counts)) or 0)
    assert command.main([]) == 0
    assert kept == [("base", {"base": {PATH: 101}} | ({} if changed else {"HEAD": {PATH: 100}}))]
    assert command.main(["full"]) == 0 and len(kept) == 1
    saved = str(tmp_path / "build" / "counts.json")
    assert command.main(["quick", "--save", saved]) == 0 and len(kept) == 1
    monkeypatch.setattr(command, "counted", None)
    assert command.main(["--times", saved]) == 0 and kept == 2 * kept[:1]
