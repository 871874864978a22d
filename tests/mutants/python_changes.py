"""The single-point changes of a Python file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

COMPARED = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="), ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}  # fmt: skip
CALCULATED = {ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*")}
JOINED = {ast.And: ("and", "or"), ast.Or: ("or", "and")}
EXTREMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
UNTRIED = {"TYPE_CHECKING", "__slots__", "__all__", "__repr__", "debug"}
"""Names of what no behaviour hangs on: a node that has one of them is left out with all below it."""


class Change(NamedTuple):
    """The bytes of a file from `start` to `end` become `new`."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def applied(self, source: bytes) -> bytes:
        """Return the file with the change in it."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.path}:{self.line}: `{old}` -> `{new}`"


class _Finder:
    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.starts = [0]
        for line in source.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        first = self.starts[node.lineno - 1] + node.col_offset
        return first, self.starts[node.end_lineno - 1] + node.end_col_offset

    def change(self, start: int, end: int, new: str) -> Change:
        line = self.source.count(b"\n", 0, start) + 1
        return Change(self.path, line, start, end, self.source[start:end].decode(), new)

    def between(self, left: ast.expr, right: ast.expr, words: tuple[str, str]) -> Iterator[Change]:
        start, end = self.span(left)[1], self.span(right)[0]
        edge = r"\b" if words[0].isalpha() else ""
        found = re.search(edge + re.escape(words[0]).replace(r"\ ", r"\s+") + edge, self.source[start:end].decode())
        if found:
            yield self.change(start + found.start(), start + found.end(), words[1])

    def walk(self, node: ast.AST) -> Iterator[Change]:
        if _is_untried(node):
            return
        yield from self.of(node)
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns", "decorator_list", "type_comment", "bases"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        yield from self.walk(child)

    def of(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
                    yield from self.between(left, right, COMPARED[type(operator)])
            case ast.BinOp() if type(node.op) in CALCULATED:
                yield from self.between(node.left, node.right, CALCULATED[type(node.op)])
            case ast.BoolOp():
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from self.between(left, right, JOINED[type(node.op)])
            case ast.AugAssign() if type(node.op) in CALCULATED:
                yield from self.between(node.target, node.value, CALCULATED[type(node.op)])
            case ast.If() | ast.IfExp() | ast.While() if not isinstance(node.test, ast.Compare | ast.Constant):
                start, end = self.span(node.test)
                yield self.change(start, end, f"not ({self.source[start:end].decode()})")
            case ast.Call():
                yield from self.of_call(node)
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield self.change(*self.span(node), "pass")
            case ast.Constant(value=bool() | int()):
                other = str(not node.value if isinstance(node.value, bool) else node.value + 1)
                yield self.change(*self.span(node), other)

    def of_call(self, node: ast.Call) -> Iterator[Change]:
        if isinstance(node.func, ast.Name) and node.func.id in EXTREMES:
            yield self.change(*self.span(node.func), EXTREMES[node.func.id])
            return  # in any order they give the same
        for left, right in zip(node.args, node.args[1:], strict=False):
            (start, middle), (other, end) = self.span(left), self.span(right)
            one, two = self.source[start:middle].decode(), self.source[other:end].decode()
            if one != two and not isinstance(left, ast.Starred) and not isinstance(right, ast.Starred):
                yield self.change(start, end, two + self.source[middle:other].decode() + one)


def _is_untried(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.keyword(arg="strict", value=ast.Constant(value=True)):
            return True  # what is asserted, in `zip` too, holds
        case ast.FunctionDef(name=name) | ast.If(test=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name in UNTRIED
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
            return name in UNTRIED
        case ast.Call(func=ast.Name(id=name)):
            return name in ("TypeVar", "ParamSpec", "isinstance")
    return False


def python_changes(path: str, source: bytes) -> list[Change]:
    """Return the changes of a file, in the order of their places; a few give no program."""
    return sorted(set(_Finder(path, source).walk(ast.parse(source))), key=lambda change: change[2:])


def compiles(source: bytes) -> bool:
    """Return whether this is a program."""
    try:
        compile(source, "changed", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
