"""Every command and example in README.md, CONTRIBUTING.md, examples/ and docs/ runs, and shows what the text says.

A document's blocks run in order in one fresh directory. In a ```console block the lines after `$ ` are run by
bash and must end with status 0; lines that follow are the expected output, where `...` stands for anything.
A ```python block with `>>>` is a doctest, any other one is executed. A comment `<!-- not run: reason -->`
before a block leaves it out.
"""

import doctest
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
DOCUMENTS = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", EXAMPLES / "README.md", *sorted((ROOT / "docs").rglob("*.md"))
]  # fmt: skip
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: \S(?:(?!-->).)*-->\s*\Z", re.DOTALL)
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line of its fence, and whether it is left out."""

    language: str
    text: str
    line: int
    left_out: bool


@dataclass(frozen=True)
class Step:
    """A command of a console block and the output it should have ("" for any)."""

    command: str
    expected: str


def blocks_of(text: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        left_out = NOT_RUN.search(text[: match.start()]) is not None
        found.append(Block(match[1], match[2], line, left_out))
    return found


def steps_of(block: Block) -> list[Step]:
    steps: list[tuple[list[str], list[str]]] = []
    continued = False
    for line in block.text.splitlines():
        if continued:
            steps[-1][0].append(line.removeprefix("> "))
        elif line.startswith("$ "):
            steps.append(([line[2:]], []))
        else:
            steps[-1][1].append(line)
        continued = steps[-1][0][-1].endswith("\\") and not steps[-1][1]
    return [Step("\n".join(command), "\n".join(expected).strip()) for command, expected in steps]


def run_console(block: Block, where: str, directory: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    ours = {"PATH": path, "NO_COLOR": "1", "COLUMNS": "200", "TZ": "UTC", "PYTEST_ADDOPTS": ""}
    environment = {**os.environ, **ours}
    for step in steps_of(block):
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", step.command],
            cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{where}: $ {step.command}\n{done.stdout}{done.stderr}"
        if step.expected:
            matches = doctest.OutputChecker().check_output(step.expected + "\n", done.stdout, OPTIONS)
            assert matches, f"{where}: $ {step.command}\nsaid: {done.stdout}\nexpected: {step.expected}"


def run_python(block: Block, where: str, names: dict[str, Any]) -> None:
    if ">>>" not in block.text:
        exec(compile(block.text, where, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, where, where, block.line)
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    said: list[str] = []
    runner.run(test, out=said.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(said)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    names: dict[str, Any] = {"__name__": "__example__"}
    for block in blocks_of(document.read_text(encoding="utf-8")):
        where = f"{document.relative_to(ROOT)}:{block.line}"
        if block.left_out:
            continue
        if block.language == "console":
            run_console(block, where, tmp_path)
        elif block.language == "python":
            run_python(block, where, names)


def test_a_wrong_example_is_found(tmp_path: Path) -> None:
    """The checks above can fail: a wrong output, a failing command, a wrong doctest."""
    good, wrong, failing = blocks_of(
        "```console\n$ echo a \\\n> b\na ...\n```\n```console\n$ echo a\nb\n```\n```console\n$ false\n```\n"
    )
    run_console(good, "here", tmp_path)
    for block in (wrong, failing):
        with pytest.raises(AssertionError, match="here"):
            run_console(block, "here", tmp_path)
    (doctested,) = blocks_of("```python\n>>> 1 + 1\n3\n```\n")
    with pytest.raises(AssertionError, match="Expected"):
        run_python(doctested, "here", {})


def test_a_block_is_left_out_only_with_a_reason() -> None:
    with_reason = "<!-- not run: takes minutes -->\n```console\n$ false\n```\n"
    without = "<!-- not run -->\n```console\n$ false\n```\n"
    assert [b.left_out for b in blocks_of(with_reason + without)] == [True, False]


def test_every_program_of_the_examples_is_listed_and_tested() -> None:
    listed = re.findall(r"^\| \[([\w.]+)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    there = [one.name for one in EXAMPLES.iterdir() if one.name != "README.md" and not one.name.startswith(("_", "."))]
    assert sorted(listed) == sorted(there)
    for name in there:
        assert (ROOT / "tests" / "examples" / f"test_{name.split('.')[0]}.py").is_file(), name


def test_links_to_files_lead_somewhere() -> None:
    for document in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.relative_to(ROOT)} points to {target}"
