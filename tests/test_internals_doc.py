"""The walks of docs/internals name files that exist, and in each file what is said to be in it."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.trees import PACKAGE, SOURCES

USUAL = ("kafkalog", ".", "kafkalog/storage", "kafkalog/tools", "docs", "docs/internals", "tests", "examples")
FOLDERS = [SOURCES / one for one in USUAL]
DOCUMENTS = [*(SOURCES / "docs").glob("*.md"), *(SOURCES / "docs" / "internals").glob("*.md")]
FILE = re.compile(r"[\w/]*\w\.(?:pyx|pxd|py|md|sh)\b")
STEP = re.compile(r"^ {4,44}(?P<names>[^ ].*?) {2,}(?P<where>.*)$")
NAME = re.compile(r"(?:\w+\.)+\w+|[a-z_]+_\w+|[A-Z][a-z]+[A-Z]\w*")
WRITTEN_BY_A_BUILD = ("_version.py",)
BROKER_SCRIPTS = ("kafka-storage.sh", "kafka-server-start.sh")


@cache
def paths_by_name() -> dict[str, list[Path]]:
    found = defaultdict[str, list[Path]](list)
    for top in ("kafkalog", "tests"):
        for path in (SOURCES / top).rglob("*.*"):
            found[path.name].append(path)
    return dict(found)


@cache
def text_of(path: Path) -> str:
    return path.read_text()


def find_files(name: str) -> list[Path]:
    """The files that a document may mean by that: a path from one of the usual folders, or the end of one."""
    for folder in FOLDERS:
        if (folder / name.lstrip("/")).is_file():
            return [folder / name.lstrip("/")]
    last = name.rpartition("/")[2]
    if last in WRITTEN_BY_A_BUILD:
        return [PACKAGE / last]
    return paths_by_name().get(last, [])


def steps() -> Iterator[tuple[str, str]]:
    for page in sorted((SOURCES / "docs" / "internals").glob("*.md")):
        for line in page.read_text().splitlines():
            step = STEP.match(line)
            if step is not None and FILE.search(step["where"]):
                yield step["names"].removeprefix("→ ").removeprefix("[lock] "), step["where"]


@pytest.mark.parametrize("document", sorted(str(one.relative_to(SOURCES / "docs")) for one in DOCUMENTS))
def test_every_file_that_is_named_is_there(document: str) -> None:
    text = (SOURCES / "docs" / document).read_text()
    for script in BROKER_SCRIPTS:
        text = text.replace(script, "")
    assert [name for name in FILE.findall(text) if not find_files(name)] == []


def test_there_are_walks() -> None:
    assert len(list(steps())) > 100


@pytest.mark.parametrize(("names", "where"), list(steps()))
def test_a_step_is_where_the_walk_says(names: str, where: str) -> None:
    """A name like `LogSegment.write` or `place_append` stands in one of the files beside it."""
    text = "".join(text_of(path) for name in FILE.findall(where) for path in find_files(name))
    for name in NAME.findall(names):
        assert re.search(rf"\b{name.rpartition('.')[2]}\b", text), f"{name}: {where}"


def where_is() -> list[tuple[str, str]]:
    text = (SOURCES / "CONTRIBUTING.md").read_text().partition("## Where is …?")[2].partition("\n## ")[0]
    return re.findall(r"^\| [^|]+ \| `([^`]+)` \| `([^`]+)` \|$", text, re.MULTILINE)


def test_fifteen_questions_are_answered() -> None:
    assert len(where_is()) >= 15


@pytest.mark.parametrize(("file", "definition"), where_is())
def test_what_is_asked_for_is_defined_there(file: str, definition: str) -> None:
    text = (PACKAGE / file).read_text()
    for name in definition.split("."):
        is_function = rf"^\s*(?:(?:async )?def|cdef [\w ]+|cdef|class|cdef class) {name}\b"
        assert re.search(rf"{is_function}|^{name}\b.* = ", text, re.MULTILINE), f"{name} is not defined in {file}"
