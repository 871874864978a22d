"""examples/consumer_offsets.ipynb: its cells run in order, as Jupyter runs them, in a process of their own."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kafkalog
from tests.commands import environment
from tests.examples.programs import EXAMPLES
from tests.golden_cases import GOLDEN, unpack

pytest.importorskip("pandas")

NOTEBOOK = EXAMPLES / "consumer_offsets.ipynb"
EXTRA = GOLDEN / "dump-extra"
pytestmark = [
    pytest.mark.golden,
    pytest.mark.skipif(not EXTRA.is_dir(), reason=f"no dump-extra in the golden capture {GOLDEN.name!r}"),
]
JUPYTER = """
import ast, json, pathlib, sys
names = {"__name__": "__main__"}
for cell in json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            names["_"] = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
standing, commits = names["standing"], names["commits"]
of_rows = dict(orient="records", date_format="iso")
print(commits.to_json(**of_rows), standing.to_json(**of_rows), sep="\\n")
"""


def run(data: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error", "-c", JUPYTER, str(NOTEBOOK)]
    return subprocess.run(command, env=environment(KAFKALOG_DIR=str(data)), capture_output=True, text=True)


def test_commits_and_lags_are_those_that_the_reference_shows(tmp_path: Path) -> None:
    unpack(EXTRA / "data.tar.gz", tmp_path)
    done = run(tmp_path / "data")
    assert done.returncode == 0 and not done.stderr, done.stderr
    commits, standing = map(json.loads, done.stdout.splitlines())
    dumped = committed_in_the_reference_dump()
    shown = [dumped[place] for place in sorted(set(dumped) & committed_places(tmp_path / "data"))]
    assert len(shown) < len(dumped)  # a transaction that was aborted is among them
    printed = [(row["group"], row["topic"], row["partition"], row["offset"]) for row in commits]
    assert sorted((*row[:3], -1 if row[3] is None else row[3]) for row in printed) == sorted(shown)
    last = {row[:3]: row[3] for row in shown}
    assert {(row["group"], row["topic"], row["partition"]): row["offset"] for row in standing} == {
        key: offset for key, offset in last.items() if offset >= 0
    }
    assert all(row["lag"] == row["end"] - row["offset"] for row in standing)


def committed_places(data: Path) -> set[tuple[str, int]]:
    """(partition, offset) of the records that a consumer sees that reads committed."""
    with kafkalog.open_dirs(data) as dirs:
        logs = dirs.logs("__consumer_offsets")
        return {(log.name, record.offset) for log in logs for record in log.records(isolation="read_committed")}


def committed_in_the_reference_dump() -> dict[tuple[str, int], tuple[str, str, int, int]]:
    """Return (group, topic, partition, offset) of each commit in the reference's dump; -1 for a deleted one."""
    value = r'(?:{"version":"\d","data":(.*)}|<DELETE>)'
    pattern = re.compile(r'offset: (\d+) .* key: {"type":"1","data":({.*?})} payload: ' + value + "$")
    found = {}  # some files were dumped more than once
    for one in json.loads(gzip.decompress((EXTRA / "runs.json.gz").read_bytes()))["runs"]:
        if "--offsets-decoder" in one["args"] and "--skip-record-metadata" not in one["args"]:
            for line in one["stdout"].splitlines():
                if match := pattern.search(line):
                    key, kept = json.loads(match[2]), json.loads(match[3] or '{"offset": -1}')
                    commit = (key["group"], key["topic"], key["partition"], kept["offset"])
                    found[Path(one["args"][-1]).parent.name, int(match[1])] = commit
    return found


def test_a_directory_without_the_topic_is_said(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 1 and "there is no topic '__consumer_offsets'" in done.stderr


def test_it_is_a_notebook_without_outputs() -> None:
    """The saved output of a run is specific to one machine: it is not kept."""
    document = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in document["cells"]}) == len(document["cells"])
    for cell in document["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)
