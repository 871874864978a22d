"""asv's results in the repository belong to its commits; asv keeps new ones and makes pages of both. No timing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from asv_benchmarks.counting import __main__ as command
from asv_benchmarks.counting import history, kept
from asv_benchmarks.counting.base import ROOT, commit_of, git
from asv_benchmarks.counting.callgrind import Counts
from asv_benchmarks.counting.history import RESULTS, History
from asv_benchmarks.counting.kept import KEPT, PAGE
from asv_benchmarks.hot_paths.all import PATHS
from tests.benchmarks.test_base import GIT
from tests.trees import PACKAGE

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


COMPARE = f"""
import json, sys
from pathlib import Path

from asv_benchmarks.counting.history import RESULTS, History

commits, new = sys.argv[2:], History(Path(sys.argv[1]))
before = tuple(RESULTS.rglob("*"))
failed = new.add(commits, {{one: {{{PATH!r}: 1000 * (n + 1)}} for n, one in enumerate(commits)}}, timed=[{PATH!r}])
changes = new.changes()
new.publish()
print(json.dumps({{
    "failed": failed, "found": [json.loads(new.file(one).read_text()) for one in commits], "changes": changes,
    "points": new.points(), "same": tuple(RESULTS.rglob("*")) == before,
}}))
"""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with this tree's compiled modules and one commit more, for which nothing has to be compiled."""
    clone = tmp_path / "clone"
    subprocess.run([*GIT, "clone", "-q", "--shared", str(ROOT), str(clone)], check=True)
    for file in (*PACKAGE.rglob("*.so"), PACKAGE / "_version.py"):
        (clone / "kafkalog" / file.relative_to(PACKAGE)).symlink_to(file)
    subprocess.run([*GIT, "commit", "-q", "--allow-empty", "-m", "another one"], cwd=clone, check=True)
    return clone


@pytest.mark.slow
@pytest.mark.usefixtures("whole_history", "needs_asv")
def test_asv_compares_two_commits_and_keeps_both_results(clone: Path, tmp_path: Path) -> None:
    commits = [str(commit_of(name, clone)) for name in ("HEAD^1", "HEAD")]
    done = subprocess.run(
        [sys.executable, "-c", COMPARE, str(tmp_path / "store"), *commits], cwd=clone, check=True, text=True,
        env=os.environ | {"PYTHONPATH": str(clone)}, stdout=subprocess.PIPE,
    )  # fmt: skip
    made = json.loads(done.stdout)
    assert made["failed"] == [] and made["same"]
    for number, (commit, found) in enumerate(zip(commits, made["found"], strict=True)):
        assert found["commit_hash"] == commit
        assert (number + 1) * 1000 in found["results"]["bench_hot_paths.Instructions.track_instructions"][0]
        assert any(time > 0 for time in found["results"]["bench_hot_paths.Checksums.time_once"][0])
    assert any("crc of 100 bytes" in line for line in made["changes"])  # twice as many instructions
    assert made["points"] > len(PATHS)


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


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> dict[object, int]:
    """The instructions of one path by its tree: this one takes 100, and the last release 101."""
    taken: dict[object, int] = {ROOT: 100, Path("base"): 101}
    monkeypatch.setattr(command, "unavailable", lambda: None)
    monkeypatch.setattr(command, "commit_of", lambda name: name)
    monkeypatch.setattr(command, "choose_base", lambda: ("base", "the last release"))
    monkeypatch.setattr(command, "shares_modules", lambda commit: True)
    monkeypatch.setattr(command, "make_base", lambda commit: Path(commit))
    monkeypatch.setattr(command, "is_changed", lambda: False)
    monkeypatch.setattr(command, "counted", lambda tree, profile, names=(): Counts({PATH: taken[tree]}))
    monkeypatch.setattr(kept, "unusable", lambda held, profile: "no counts are kept")
    return taken


@pytest.mark.parametrize("changed", [False, True])
def test_the_counts_of_a_comparison_go_to_asv(
    changed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, counting: dict[object, int]
) -> None:
    """Those of this tree go under the name of HEAD only if it is HEAD; saved ones go there later."""
    given = []
    monkeypatch.setattr(command, "is_changed", lambda: changed)
    monkeypatch.setattr(history, "keep", lambda base, counts: given.append((base, counts)) or 0)
    assert command.main([]) == 0
    assert given == [("base", {"base": {PATH: 101}} | ({} if changed else {"HEAD": {PATH: 100}}))]
    assert command.main(["full"]) == 0 and len(given) == 1
    saved = str(tmp_path / "build" / "counts.json")
    assert command.main(["quick", "--save", saved]) == 0 and len(given) == 1
    monkeypatch.setattr(command, "counted", None)
    assert command.main(["--times", saved]) == 0 and given == 2 * given[:1]


@pytest.mark.parametrize(
    ("before", "here", "is_there", "named", "counted", "status"),
    [
        (98, 100, True, [], set(), 0),  # the kept counts are enough
        (90, 100, True, [], {"base"}, 0),  # slower than these, and not than a commit: the machine differs
        (90, 110, True, [], {"base"}, 1),
        (90, 100, False, [], set(), 1),
        (98, 100, True, ["quick", "base"], {"base"}, 0),  # a named commit is counted
    ],
)
def test_a_commit_is_counted_only_where_this_tree_is_slower_than_the_kept_counts(
    before: int, here: int, is_there: bool, named: list[str], counted: set[str], status: int,
    monkeypatch: pytest.MonkeyPatch, counting: dict[object, int],
) -> None:  # fmt: skip
    counting[ROOT], found = here, set()
    monkeypatch.setattr(kept, "unusable", lambda held, profile: None)
    monkeypatch.setattr(kept, "read", lambda: kept.Kept("release", "quick", {}, {PATH: before}, {PATH: 1}))
    monkeypatch.setattr(command, "make_base", lambda commit: found.add(commit) or Path(commit))
    if not is_there:
        monkeypatch.setattr(command, "choose_base", lambda: None)
    monkeypatch.setattr(history, "keep", lambda base, counts: 0)
    assert command.main(named) == status and found == counted
