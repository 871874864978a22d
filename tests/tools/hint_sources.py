"""The texts of the package that a user may read, and the commands, flags and names in them."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import click

import kafkalog

PACKAGE = Path(kafkalog.__file__).parent
COMMAND = re.compile(r"`kafkalog ([^`]+)`")
_TARGET = re.compile(r" (?:/|\{)\S+")
_HELP = ("help", "short_help", "epilog")


def named_commands(text: str) -> set[str]:
    """The commands in backquotes, without the paths that they are given."""
    return {_TARGET.sub("", command) for command in COMMAND.findall(text)}


@functools.cache
def texts() -> tuple[str, ...]:
    """Every string constant of the sources but docstrings; f-strings with their fields in braces."""
    return tuple(_texts())


def _texts() -> Iterator[str]:
    for tree in _trees(PACKAGE):
        passed = {id(part) for node in ast.walk(tree) for part in _left_out(node)}
        yield from _strings(tree, passed)


@functools.cache
def hints(folder: str = "") -> tuple[str, ...]:
    """The hints of errors and findings in a folder of the package: what is given as one, or has a name for one."""
    return tuple(_hints(folder))


def _hints(folder: str) -> Iterator[str]:
    for tree in _trees(PACKAGE / folder, "hint"):
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg in ("hint", "default_hint"):
                found: ast.expr | None = node.value
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                names = node.targets if isinstance(node, ast.Assign) else [node.target]
                found = node.value if any("hint" in ast.unparse(name).lower() for name in names) else None
            else:
                continue
            if found is not None:
                yield from _strings(found, {id(part) for inner in ast.walk(found) for part in _left_out(inner)})


def _trees(folder: Path, word: str = "") -> Iterator[ast.Module]:
    """The sources that have a word in them, in whatever case: to parse all of them takes seconds."""
    for path in sorted(folder.rglob("*.py")):
        if word in (text := path.read_text(encoding="utf-8")).lower():
            yield ast.parse(text)


def _strings(tree: ast.AST, passed: set[int]) -> Iterator[str]:
    for node in ast.walk(tree):
        if id(node) in passed:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else ast.unparse(one) for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _left_out(node: ast.AST) -> Iterator[ast.AST]:
    """Docstrings and help of commands, whose examples the tests of the documents run, and the parts of f-strings."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield from node.values
    elif isinstance(node, ast.keyword) and node.arg in _HELP:
        yield from ast.walk(node.value)


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that call it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield (*before, name), found
        if isinstance(found, click.Group):
            yield from commands(found, (*before, name))
