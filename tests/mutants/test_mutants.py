"""The program that changes sources: each change is one place and gives a program; outcomes are what they are called."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import blocks, report
from tests.mutants.__main__ import chosen
from tests.mutants.cython_changes import cython_changes
from tests.mutants.python_changes import Change, compiles, python_changes
from tests.mutants.reach import PACKAGES, Seen, files_naming, files_reaching
from tests.mutants.trial import Copy, Outcome
from tests.trees import ROOT

SOURCE = b'''"""Text."""
LIMIT = 2

def room(size: int = 0, *, whole: bool = False) -> bool:
    """A docstring with 1 < 2."""
    assert size > 1
    if whole:
        note(size, LIMIT)
    return size < LIMIT and min(size, 7) in (7,)
'''


def changes(source: bytes) -> list[tuple[int, str, str]]:
    return [(one.line, one.old, one.new) for one in python_changes("room.py", source)]


def test_the_changes_of_a_function() -> None:
    assert changes(SOURCE) == [
        (2, "2", "3"),
        (4, "0", "1"),
        (4, "False", "True"),
        (7, "whole", "not (whole)"),
        (8, "note(size, LIMIT)", "pass"),
        (8, "size, LIMIT", "LIMIT, size"),
        (9, "<", "<="),
        (9, "and", "or"),
        (9, "min", "max"),
        (9, "7", "8"),
        (9, "in", "not in"),
        (9, "7", "8"),
    ]


def test_what_a_program_asserts_of_lengths_is_left_as_it_is() -> None:
    assert changes(b"zip(a, b, strict=True)") == [(1, "zip(a, b, strict=True)", "pass"), (1, "a, b", "b, a")]
    assert (1, "False", "True") in changes(b"zip(a, b, strict=False)")


def test_each_change_is_one_place_of_a_program() -> None:
    path = "kafkalog/storage/new_segment.py"
    source = (ROOT / path).read_bytes()
    found = python_changes(path, source)
    assert found and len(set(found)) == len(found)
    before = ast.dump(ast.parse(source))
    for one in found[::5]:
        changed = one.applied(source)
        assert compiles(changed) and ast.dump(ast.parse(changed)) != before
        assert len(changed.splitlines()) <= len(source.splitlines())


def test_the_changes_of_a_cython_function_leave_declarations_and_texts_alone() -> None:
    source = b'''from libc.stdint cimport int64_t
cdef enum:
    SIZE = 4    # 1 < 2

cdef int64_t end(int64_t at = 3) noexcept nogil:
    """Text 1 < 2."""
    cdef int64_t most = at
    if at >= most:
        return at + SIZE
    return 0x10
'''
    found = [(one.line, one.old, one.new) for one in cython_changes("end.pyx", source)]
    assert found == [
        (3, "4", "5"),
        (8, "at >= most", "not (at >= most)"),
        (8, ">=", ">"),
        (9, "+", "-"),
        (10, "0x10", "17"),
    ]


def test_a_seed_chooses_the_same_changes_again() -> None:
    package, only = PACKAGES["cleaner"], "kafkalog/cleaner/throttle.py"
    assert chosen(package, "", 5, 1) == chosen(package, "", 5, 1) != chosen(package, "", 5, 2)
    assert {one.path for one in chosen(package, only, 5, 1)} == {only}
    [line] = {one.line for one in chosen(package, f"{only}:{chosen(package, only, 1, 1)[0].line}", 9, 1)}
    assert line


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_package_has_sources_and_its_patterns_have_tests(name: str) -> None:
    package = PACKAGES[name]
    assert all(list(ROOT.glob(pattern)) for pattern in (*package.sources, *package.tests))


def test_the_closest_tests_come_first() -> None:
    found = files_reaching(PACKAGES["cleaner"], "kafkalog/cleaner/segment_reader.py", ROOT)
    assert found[0] == "tests/cleaner/test_segment_reader.py" and len(found) > 10


def test_tests_of_a_module_are_those_that_name_it_too() -> None:
    found = files_naming(PACKAGES["server"], "kafkalog/server/settings/table.py", ROOT)
    assert "tests/server/test_settings.py" in found
    assert set(found) < set(files_reaching(PACKAGES["server"], "kafkalog/server/settings/table.py", ROOT))


def test_the_tests_of_a_line_are_those_that_ran_its_statement() -> None:
    source = b"LIMIT = 2\n\ndef room(n):\n    if n:\n        return call(\n            n, LIMIT)\n    return 0\n"
    seen = Seen(json.dumps({
        "seconds": {"test_a.py::slow": 2.0, "test_a.py::quick": 1.0, "test_b.py::other": 0.5, "test_c.py::apart": 0.1},
        "tests": ["", "test_a.py::slow", "test_a.py::quick", "test_b.py"],
        "lines": {"room.py": {"1": [0], "4": [1, 2], "5": [1], "6": [2], "7": [3]}},
    }))  # fmt: skip
    assert seen.tests_of("room.py", source, 4) == ["test_a.py::quick", "test_a.py::slow"]
    assert seen.tests_of("room.py", source, 5) == ["test_a.py::slow"]
    assert seen.tests_of("room.py", source, 6) == ["test_a.py::quick", "test_a.py::slow"]
    assert seen.tests_of("room.py", source, 7) == ["test_b.py::other"], "a fixture of the file ran it"
    assert seen.tests_of("room.py", source, 1) == ["test_b.py::other", "test_a.py::quick", "test_a.py::slow"]
    assert seen.tests_of("other.py", source, 4) == []


def test_the_plugin_sees_which_test_runs_which_line(tmp_path: Path) -> None:
    found = Copy(ROOT, tmp_path / "copy").watch(["tests/test_times.py"], 300)
    path = "kafkalog/util/times.py"
    source = (ROOT / path).read_bytes()
    lines = [line for line, text in enumerate(source.decode().splitlines(), 1) if "return" in text]
    tests = [test for line in lines for test in found.tests_of(path, source, line)]
    assert tests and all(test.partition("::")[0].endswith("test_times.py") for test in tests)


CYTHON = b"""from libc.stdint cimport int64_t

cdef enum:
    SIZE = 4

cdef int64_t end(int64_t at = 3) noexcept nogil:
    cdef int64_t most = least(at)
    if at >= most:
        at += 1
        return at + SIZE
    return most

cdef int64_t least(int64_t at) noexcept nogil:
    return at
"""


@pytest.mark.parametrize(("line", "tests"), [
    (8, ["many", "once"]),
    (10, ["many", "once"]),
    (11, ["none", "many"]),
    (14, ["least", "none", "once", "many"]),
    (4, ["least", "none", "once", "many"]),
])  # fmt: skip
def test_the_tests_of_a_cython_line_are_those_that_ran_its_block(line: int, tests: list[str]) -> None:
    names = ["test_a.py::least", "test_a.py::none", "test_a.py::once", "test_a.py::many"]
    lines = {"7": [2, 3], "9": [3], "11": [1], "13": [0, 1, 2, 3]}
    page = {"seconds": dict.fromkeys(names, 1), "tests": names, "lines": {"end.pyx": lines}}
    found = Seen(json.dumps(page)).tests_of("end.pyx", CYTHON, line)
    assert {test.partition("::")[2] for test in found} == set(tests)


def test_all_tests_of_modules_that_import_a_constant_are_those_of_its_line() -> None:
    path = "kafkalog/_core/arrow/rows.pxd"
    source = (ROOT / path).read_bytes()
    line = source.decode().splitlines().index("    TOPIC = 2") + 1
    lines = {"kafkalog/_core/arrow/encoder.pyx": {"300": [0]}, "kafkalog/_core/arrow/rows.pyx": {"90": [1]}}
    lines["kafkalog/_core/bytes/crc.pyx"] = {"20": [2]}
    page = {"seconds": {"a::b": 1, "a::c": 2, "a::d": 3}, "tests": ["a::b", "a::c", "a::d"], "lines": lines}
    assert Seen(json.dumps(page)).tests_of(path, source, line) == ["a::b", "a::c"]


ROOM = """
int room(int size) {
    if (size > 2)
        size += 1;
    else
        size -= 1;
    return size;
}
"""
CALLS = """
import ctypes, sys
from pathlib import Path
from tests.mutants.blocks import Blocks
blocks = Blocks(Path(sys.argv[1]))
room = ctypes.CDLL(sys.argv[1] + "/room.so").room
blocks.switch("large")
room(3)
blocks.switch("small")
room(1), room(1)
print(sorted((line, sorted(tests)) for line, tests in blocks.lines()["room.c"].items()))
"""


def test_blocks_of_compiled_code_are_known_by_their_lines(tmp_path: Path) -> None:
    (tmp_path / "room.c").write_text(ROOM)
    flags = [*blocks.FLAGS.split(), "-g", "-O0", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", "room.so", "room.c"], cwd=tmp_path, check=True)
    environ = {**os.environ, "LD_PRELOAD": str(blocks.build(tmp_path)), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", CALLS, str(tmp_path)]
    printed = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout
    ran = dict(ast.literal_eval(printed))
    assert ran[3] == ["large", "small"] and ran[4] == ["large"] and ran[6] == ["small"]


def small_tree(root: Path, source: str, test: str) -> Change:
    (root / "setup.py").touch()
    (root / "room.py").write_text(source)
    (root / "test_room.py").write_text(f"from room import room\n\n\ndef test_room():\n    {test}\n")
    (root / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["slow", "interop", "spark"]\n')
    [change] = python_changes("room.py", source.encode())
    return change


@pytest.mark.parametrize(("test", "word"), [
    ("assert room(2) and not room(1)", "noticed"),
    ("assert room(2) or bytes(9 << 30)", "noticed"),
    ("assert room(3) and not room(1)", "survived"),
    ("while not room(2): pass", "timed out"),
])  # fmt: skip
def test_a_change_is_tried_in_the_copy_and_taken_back(tmp_path: Path, test: str, word: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    change = small_tree(root, "def room(n, most=None):\n    return n >= abs(len('ab'))\n", test)
    before = {path.name: path.read_bytes() for path in root.iterdir()}
    copy = Copy(root, tmp_path / "copy")
    assert copy.run(["test_room.py"], 60).word == "survived"
    assert copy.try_change(change, ["test_room.py"], 20 if word != "timed out" else 3).word == word
    assert copy.run(["test_room.py"], 60).word == "survived"
    assert {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()} == before


def test_the_report_counts_what_alters_nothing_apart() -> None:
    one = Change("kafkalog/a.py", 2, 9, 10, "<", "<=")
    source = b"if True:\n  if a < b: pass\n"
    row = "| kafkalog/a.py | `if a < b: pass` | `<` -> `<=` | they are never the same |"
    assert report.key(one, source) in report.equivalents(f"| file | line |\n|---|---|\n{row}\n")
    outcomes = [(one, Outcome(word)) for word in ("noticed", "timed out", "survived", "equivalent")]
    assert report.summary(outcomes).startswith("2 of 3 noticed (67 %)")
    assert "survived" in report.page("title", outcomes)


def test_rows_of_equivalent_changes_are_of_lines_that_are_there() -> None:
    for file, line, _ in report.equivalents(report.EQUIVALENT.read_text(encoding="utf-8")):
        lines = [one.strip() for one in (ROOT / file).read_text(encoding="utf-8").splitlines()]
        assert line in lines, (file, line)
