"""House rules on the sources: small files, short functions, nothing left to do, ruff and mypy clean."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.trees import SOURCES

FOLDERS = ("kafkalog", "pyspark_kafkalog", "tests", "examples", "asv_benchmarks", "ci", "fuzz")
CODE = (".py", ".pyi", ".pyx", ".pxd", ".c", ".h", ".sh", ".java")
FILE_LINES, FUNCTION_LINES = 500, 70
LEFTOVER = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
NO_FUNCTION = r"(?!.*\b(?:class|struct|enum|extern|union)\b)"
ENUM = re.compile(r"^cdef enum[^:\n]*:\n((?:(?: +.*)?\n)+)", re.MULTILINE)
ENUMERATOR = re.compile(r"^ +(\w+) *= *([^#\n]+)", re.MULTILINE)
CYTHON_DEF = re.compile(rf"^( *)(?:def|cpdef|cdef)\b{NO_FUNCTION}.*\(", re.MULTILINE)
RELATIVE = r"(?:What|How|Whether|Where|Which|Who|Whoever|The same)\b|As `"
SKIPPED = {"data", "target", "__pycache__", "env", "results", "html"}


def files(*suffixes: str) -> list[Path]:
    return sorted(p for p in every_file() if p.suffix in suffixes and p.name != "_version.py")


@cache
def every_file() -> list[Path]:
    found = [SOURCES / "setup.py"]
    for folder in FOLDERS:
        for place, folders, names in os.walk(SOURCES / folder):
            folders[:] = [name for name in folders if name not in SKIPPED]
            found += [Path(place, name) for name in names]
    return found


def by_path(path: Path) -> str:
    return str(path.relative_to(SOURCES))


def cython_functions(text: str) -> list[tuple[str, int]]:
    """(first line, number of lines) of every function of a Cython file, by its indentation."""
    lines = text.split("\n")
    found = []
    for match in CYTHON_DEF.finditer(text):
        start = text.count("\n", 0, match.start())
        indent = len(match.group(1))
        end = last = start + 1
        opened = lines[start].count("(") - lines[start].count(")")
        while end < len(lines):
            line = lines[end]
            if opened <= 0 and line.strip() and len(line) - len(line.lstrip()) <= indent:
                break
            opened += line.count("(") - line.count(")") if opened > 0 else 0
            end += 1
            if line.strip():
                last = end
        found.append((lines[start].strip(), last - start))
    return found


def test_files_are_short() -> None:
    lengths = {by_path(path): len(path.read_text(encoding="utf-8").splitlines()) for path in files(*CODE)}
    assert {name: length for name, length in lengths.items() if length > FILE_LINES} == {}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements below a node, with no look into expressions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


def long_functions(text: str) -> dict[str, int]:
    """The functions of a Python file that are too long, each with its number of lines."""
    if text.count("\n") <= FUNCTION_LINES:
        return {}
    functions = [n for n in statements(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {n.name: size for n in functions if (size := (n.end_lineno or 0) - n.lineno + 1) > FUNCTION_LINES}


def test_python_functions_are_short() -> None:
    found = {by_path(path): long_functions(path.read_text(encoding="utf-8")) for path in files(".py")}
    assert {name: functions for name, functions in found.items() if functions} == {}


def test_lengths_of_python_functions_are_counted() -> None:
    body = "    x = 1\n" * (FUNCTION_LINES - 1)
    assert long_functions(f"def f():\n{body}\n\nasync def g():\n{body}    return x\n") == {"g": FUNCTION_LINES + 1}


def test_no_docstring_of_the_package_opens_with_a_relative_clause() -> None:
    """It says what the function does, or what the class is."""
    sources = (SOURCES / "kafkalog").rglob("*.py")
    assert [f"{by_path(path)}: {one}" for path in sources for one in relative_openings(path.read_text("utf-8"))] == []


def relative_openings(text: str) -> list[str]:
    """Return the first lines of docstrings that open so; a text without a string that does need not be parsed."""
    if re.search(rf"""["'][\\\s]*(?:{RELATIVE})""", text) is None:
        return []
    tree = ast.parse(text)
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    docstrings = [ast.get_docstring(node) or "" for node in (tree, *statements(tree)) if isinstance(node, kinds)]
    return [first for one in docstrings if re.match(RELATIVE, first := one.partition("\n")[0])]


@pytest.mark.parametrize("opening", ['"""How ', '"""\\\n    Whether ', "'As `a` ", 'r"""\n\n    The same '])
def test_a_relative_clause_is_found(opening: str) -> None:
    text = f"def f(a):\n    {opening}"
    quote = '"""' if '"""' in opening else "'"
    assert len(relative_openings(f"{text}it is.{quote}\n")) == 1
    assert relative_openings("def f(a):\n    '''Return how.'''\n    return 'How'\n") == []


@pytest.mark.parametrize("path", files(".pyx", ".pxd"), ids=by_path)
def test_cython_functions_are_short(path: Path) -> None:
    found = cython_functions(path.read_text(encoding="utf-8"))
    assert not [(name, size) for name, size in found if size > FUNCTION_LINES]


def test_lengths_of_cython_functions_are_counted() -> None:
    text = "cdef struct S:\n    int a\n\ncdef int f(int a,\n    int b) noexcept nogil:\n    return a\n\n\n"
    text += "cdef class C:\n    def g(self):\n        x = 1\n\n        return x\n"
    assert cython_functions(text) == [("cdef int f(int a,", 3), ("def g(self):", 4)]


def test_nothing_is_left_to_do() -> None:
    others = [path for path in files(*CODE) if path != SOURCES / "tests" / Path(__file__).name]
    assert [by_path(path) for path in others if LEFTOVER.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("path", files(".pyx"), ids=by_path)
def test_every_compiled_module_has_a_stub_and_no_typed_memoryview(path: Path) -> None:
    assert path.with_suffix(".pyi").is_file()
    assert not re.search(r"\[\s*::?\s*1?\s*\]\s+\w+", path.read_text(encoding="utf-8"))


def run(*command: str, **environ: str) -> None:
    given = {**os.environ, **environ}
    done = subprocess.run([sys.executable, "-m", *command], cwd=SOURCES, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", files(".pyx", ".pxd"), ids=by_path)
def test_what_an_enum_counts_is_an_int(path: Path) -> None:
    """One constant beyond it makes the enum unsigned or long where clang compiles, and -1 larger than all of it."""
    known: dict[str, int] = {}
    for block in ENUM.findall(path.read_text(encoding="utf-8")):
        for name, value in ENUMERATOR.findall(block):
            try:
                known[name] = eval(value, {"__builtins__": {}}, known)
            except NameError:
                continue  # of another module, where it is looked at
            assert -(2**31) <= known[name] < 2**31, f"{name} of {path.name}: use a constant of C"


def test_ruff() -> None:
    run("ruff", "check", "--no-cache", ".")


def test_mypy(tmp_path: Path) -> None:
    """The examples are what a user's type checker sees of the package."""
    cache = {} if os.access(SOURCES, os.W_OK) else {"MYPY_CACHE_DIR": str(tmp_path)}  # it has to write one
    run("mypy", "--strict", "kafkalog", *map(str, sorted((SOURCES / "examples").rglob("*.py"))), **cache)
