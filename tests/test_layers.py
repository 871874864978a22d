"""Imports go one way: a module may import its own layer and those below it, as docs/architecture.md lists them."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.trees import ROOT, SOURCES

PACKAGE = SOURCES / "kafkalog"
LISTED = re.compile(r"^    (\S+(?: · \S+)*) {2,}\S", re.MULTILINE)


def layers() -> list[list[str]]:
    """Return the layers of docs/architecture.md, the lowest first, each with its rooms."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.partition("## The shape\n")[2].partition("\n## ")[0]
    return [line.split(" · ") for line in LISTED.findall(section)][::-1]


HEIGHT = {room: height for height, rooms in enumerate(layers()) for room in rooms}
# the start of `kafkalog --version` has 0.15 s: these are imported where they are first used
LATE = {"numpy", "rich", "cramjam", "crc32c", "deflate", "zstandard", "pyarrow", "pandas", "polars", "duckdb"}
LATE.add("asyncio")
SPARK = {"pyspark", "py4j"}
OF_ARROW = {f"exchange/{name}.py" for name in ("line_rows", "offset_batches", "parquet_files", "row_files")}
OF_ARROW |= {f"where/{name}.py" for name in ("columns", "comparing", "compiled", "lists", "texts")}
"""All that these do is done with pyarrow; they are imported when an export, an import or a filter begins."""
CIMPORT = re.compile(r"^\s*(?:from\s+(kafkalog[\w.]*)\s+c?import|c?import\s+(kafkalog[\w.]*))", re.MULTILINE)


def room_of(module: str) -> str:
    """Return the room of the package that a dotted module name belongs to."""
    names = module.split(".")
    if names[-1] == "__main__":
        return "__main__"  # an entry point, wherever it lies
    return names[1] if len(names) > 1 else "__init__"


def module_name(path: Path) -> str:
    names = path.relative_to(SOURCES).with_suffix("").parts
    return ".".join(names[:-1] if names[-1] == "__init__" else names)


def imports_of(path: Path) -> set[str]:
    """The kafkalog modules that a Python or Cython file imports, wherever in the file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".pyx", ".pxd"):
        return {first or second for first, second in CIMPORT.findall(text)}
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are written in full"
            base = node.module or ""
            # `from kafkalog import x` names a module where there is one of that name
            found.update(f"{base}.{alias.name}" if base == "kafkalog" else base for alias in node.names)
    return {name for name in found if name.split(".")[0] == "kafkalog"}


def sources() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".pyi", ".pyx", ".pxd"))


def test_the_list_names_every_room() -> None:
    rooms = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix in ("", ".py")}
    assert set(HEIGHT) == rooms - {"__pycache__"}


def wrong_imports(path: Path) -> list[str]:
    """Return the imports of a file that do not lie below its layer."""
    room = room_of(module_name(path))
    others = {name: room_of(name) for name in imports_of(path)}
    return sorted(name for name, other in others.items() if other != room and HEIGHT[other] >= HEIGHT[room])


def test_imports_only_what_lies_below() -> None:
    found = {str(path.relative_to(SOURCES)): wrong_imports(path) for path in sources()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}, "the rooms are those of docs/architecture.md"


def imported_to_run(path: Path) -> set[str]:
    """Return the kafkalog modules that a file imports, in functions too, but not those that only types need."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafkalog"):
            found.update(name for alias in node.names for name in (node.module or "", f"{node.module}.{alias.name}"))
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def test_no_file_imports_another_in_a_circle() -> None:
    files = {module_name(path): path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"}
    graph = {name: (imported_to_run(path) & files.keys()) - {name} for name, path in files.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def imported_at_start(path: Path) -> set[str]:
    """The modules that a file imports as it is imported itself."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        # imports in functions and under `if TYPE_CHECKING:` cost nothing at start
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def slow_imports(path: Path) -> set[str]:
    """The slow packages that a file imports as it is imported itself, though its users may do without them."""
    names = {name.split(".")[0] for name in imported_at_start(path)}
    if PACKAGE / "spark" in path.parents or path.relative_to(PACKAGE).as_posix() in OF_ARROW:
        return set()
    if {PACKAGE / "server", PACKAGE / "copy", PACKAGE / "sharing", PACKAGE / "testing" / "inside"} & {*path.parents}:
        names -= {"asyncio"}  # its loop is what a server is, and a copy or a queue asks servers
    late = set() if path.parent == PACKAGE / "aio" and path.name != "__init__.py" else LATE
    return names & (late | SPARK)


def test_slow_packages_are_imported_on_first_use() -> None:
    found = {str(path.relative_to(SOURCES)): slow_imports(path) for path in PACKAGE.rglob("*.py")}
    assert {name: slow for name, slow in found.items() if slow} == {}


@pytest.mark.parametrize("path", sorted((PACKAGE / "cli").glob("*.py")), ids=lambda p: p.name)
def test_no_command_imports_spark_before_it_is_asked_to(path: Path) -> None:
    assert not {name for name in imported_at_start(path) if room_of(name) == "spark"}


def test_importing_the_package_and_its_face_imports_nothing_of_spark() -> None:
    code = "import sys, kafkalog, kafkalog.spark; kafkalog.open, kafkalog.verify; import kafkalog.cli.main"
    code += "; assert not {'pyspark', 'py4j', 'pyarrow', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_rule_itself_sees_an_upward_import(tmp_path: Path) -> None:
    """The walk finds each way to write an import, so the rule above can fail."""
    python = tmp_path / "x.py"
    python.write_text(
        "import kafkalog.log.log\nfrom kafkalog.storage.log import UnifiedLog\nfrom kafkalog import aio\n"
        "def f():\n    from kafkalog.cli import main\n"
    )
    assert imports_of(python) == {"kafkalog.log.log", "kafkalog.storage.log", "kafkalog.aio", "kafkalog.cli"}
    cython = tmp_path / "x.pyx"
    cython.write_text("from kafkalog._core.batch.scan cimport Table\nimport kafkalog.records.batch\n")
    assert imports_of(cython) == {"kafkalog._core.batch.scan", "kafkalog.records.batch"}
    assert room_of("kafkalog.log.log") == "log" and room_of("kafkalog") == "__init__"
