"""Documents as tests run them: their blocks, in order, in one fresh directory.

In a ```console block the lines after `$ ` are run by bash, or as bash would, and must end with status 0; lines that
follow are the expected output, where `...` stands for anything. A ```python block with `>>>` is a doctest, any other
one is executed. A comment `<!-- not run: reason -->` before a block leaves it out.
"""

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import kafkalog

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: \S(?:(?!-->).)*-->\s*\Z", re.DOTALL)
QUOTED = re.compile(r"""'[^']*'|"[^"$`\\]*["]""")
OR_TRUE = " || true"
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


def run_console(
    block: Block, where: str, directory: Path, run: Callable[[str, Path], str | None] = lambda *_: None
) -> None:
    environment = console_environment()
    for step in steps_of(block):
        output = run(step.command, directory)
        if output is None:
            status, output, errors = run_command(step.command, directory, environment)
            assert status == 0, f"{where}: $ {step.command}\n{output}{errors}"
        if step.expected:
            matches = doctest.OutputChecker().check_output(step.expected + "\n", output, OPTIONS)
            assert matches, f"{where}: $ {step.command}\nsaid: {output}\nexpected: {step.expected}"


def console_environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    # the program may be that of another tree
    tree = f"{Path(kafkalog.__file__).parent.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)
    plugin = "-p kafkalog.pytest_plugin"  # what pytest finds by itself where this tree is the one that is installed
    ours = {"PATH": path, "PYTHONPATH": tree, "NO_COLOR": "1", "COLUMNS": "200", "TZ": "UTC", "PYTEST_ADDOPTS": plugin}
    return {**os.environ, **ours}


def run_command(command: str, directory: Path, environment: dict[str, str]) -> tuple[int, str, str]:
    """Return the status and both outputs of a command; bash runs what needs more of a shell than `stages_of` knows."""
    stages = stages_of(command)
    if stages is None:
        done = _by_bash(command, directory, environment)
        return done.returncode, done.stdout.decode(), done.stderr.decode()
    status, data, errors = 0, b"", ""
    for stage in stages:
        done = _in_a_fork(stage, data, directory, environment) or _by_bash(stage, directory, environment, data)
        status, data, errors = done.returncode or status, done.stdout, errors + done.stderr.decode()
    return 0 if command.endswith(OR_TRUE) else status, data.decode(), errors


def _in_a_fork(
    command: str, stdin: bytes, directory: Path, environment: dict[str, str]
) -> "subprocess.CompletedProcess[bytes] | None":
    """Return a finished call of `kafkalog` or of a program in Python, by the server of commands; None for others."""
    from tests.command_server import IS_POSSIBLE
    from tests.commands import MODULE

    words = words_of(command)
    if not words or not IS_POSSIBLE:
        return None
    if words[0] == "kafkalog":
        return command_server().run([MODULE, *words[1:]], stdin, str(directory), environment, timeout_s=600)
    if words[0] == "python" and words[1:] and words[1].endswith(".py"):
        return command_server().run(words[1:], stdin, str(directory), environment, timeout_s=600)
    return None


def output_by_bash(command: str, directory: Path) -> str:
    """Return the output of a command that has to succeed; needs no other module of the tests."""
    done = _by_bash(command, directory, console_environment())
    assert done.returncode == 0, f"$ {command}\n{done.stdout.decode()}{done.stderr.decode()}"
    return done.stdout.decode()


def _by_bash(
    command: str, directory: Path, environment: dict[str, str], stdin: bytes = b""
) -> "subprocess.CompletedProcess[bytes]":
    line = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(line, cwd=directory, env=environment, input=stdin, capture_output=True)


@cache
def command_server() -> Any:
    """Return what runs the plain calls in documents."""
    from tests.command_server import CommandServer

    return CommandServer(console_environment())


def stages_of(command: str) -> list[str] | None:
    """Return the stages of a pipeline that can run one after the other; None for everything else of a shell.

    One that begins with `head` cannot: it closes its pipe while the stage before still writes.
    """
    joined = command.replace("\\\n", " ").removesuffix(OR_TRUE)
    if re.search(r"[;&<>(){}`\n#]|\|\|", QUOTED.sub("", joined)):
        return None
    bars = [match.start() for match in re.finditer(r"\|", QUOTED.sub(lambda match: " " * len(match[0]), joined))]
    stages = [joined[begin + 1 : end].strip() for begin, end in pairwise([-1, *bars, len(joined)])]
    return None if any(stage.split()[:1] in ([], ["head"]) for stage in stages) else stages


def words_of(command: str) -> list[str] | None:
    """Return the words of a command; None if it has something in it that a shell has to interpret."""
    joined = command.replace("\\\n", " ")
    unquoted = QUOTED.sub("", joined)
    return None if re.search(r"[^\w @%+=:,./-]", unquoted) else shlex.split(joined)


def run_python(block: Block, where: str, names: dict[str, Any]) -> None:
    if ">>>" not in block.text:
        exec(compile(block.text, where, "exec"), names)
        return
    test = doctest.DocTestParser().get_doctest(block.text, names, where, where, block.line)
    runner = doctest.DocTestRunner(verbose=False, optionflags=OPTIONS)
    output: list[str] = []
    runner.run(test, out=output.append, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, "".join(output)


def run_document(
    document: Path, directory: Path, names: dict[str, Any], run: Callable[[str, Path], str | None] = lambda *_: None,
    instead: tuple[str, str] = ("\0", ""),
) -> None:  # fmt: skip
    """Runs all blocks; `names` are those that Python blocks find. A command that `run` gives an output for is not run
    by bash. `instead` has what is replaced everywhere, and by what.
    """
    shutil.copytree(EXAMPLES, directory / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for block in blocks_of(document.read_text(encoding="utf-8").replace(*instead)):
        where = f"{document.relative_to(ROOT)}:{block.line}"
        if block.left_out:
            continue
        if block.language == "console":
            run_console(block, where, directory, run)
        elif block.language == "python":
            run_python(block, where, names)
