"""The commit that a tree is compared with, and the modules that have to be compiled."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asv_benchmarks.counting.base import choose_base, make_base, module_keys, shares_modules
from tests.trees import SOURCES

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run([*GIT, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Four commits on main, empty."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git(tmp_path, "init", "-q", "-b", "main")
    for number in range(4):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", str(number))
    return tmp_path


def named(root: Path, name: str) -> str:
    return git(root, "rev-parse", name)


def test_the_latest_release_that_is_behind_head(repository: Path) -> None:
    git(repository, "tag", "v0.9.0", "HEAD~3")
    git(repository, "tag", "v0.10.0", "HEAD~2")
    git(repository, "tag", "other", "HEAD~1")
    assert choose_base(repository) == (named(repository, "HEAD~2"), "v0.10.0")
    git(repository, "tag", "-a", "-m", "now", "v1.0.0")
    assert choose_base(repository) == (named(repository, "HEAD~2"), "v0.10.0")


def test_without_a_release_the_commit_landed_before(repository: Path) -> None:
    assert choose_base(repository) == (named(repository, "HEAD~1"), "the commit landed before")


def test_on_a_branch_where_it_left_the_main_branch(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    clone = tmp_path_factory.mktemp("clone") / "c"
    git(repository, "clone", "-q", str(repository), str(clone))
    left = named(clone, "HEAD")
    for number in range(2):
        git(clone, "commit", "-q", "--allow-empty", "-m", f"work {number}")
    assert choose_base(clone) == (left, "where HEAD left the main branch")


def test_a_clone_without_history_has_none(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    clone = tmp_path_factory.mktemp("clone") / "c"
    git(repository, "clone", "-q", "--depth=1", f"file://{repository}", str(clone))
    assert choose_base(clone) is None
    assert choose_base(tmp_path_factory.mktemp("empty")) is None


def test_a_commit_whose_modules_lie_elsewhere_cannot_be_counted(repository: Path) -> None:
    for path in ("kafkalog/_core/crc.pyx", "kafkalog/_core/bytes/crc.pyx"):
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).touch()
        git(repository, "add", path)
        git(repository, "commit", "-q", "-m", path)
        (repository / path).unlink()
        git(repository, "rm", "-q", "--cached", path)
    (repository / "kafkalog/_core/bytes/crc.pyx").touch()
    assert not shares_modules(named(repository, "HEAD~1"), repository)
    assert shares_modules(named(repository, "HEAD"), repository)


SLOW_SCRIPT = """
import pathlib, time

mark = pathlib.Path({mark!r})
mark.touch(exist_ok=False)
time.sleep(0.3)
mark.unlink()
DIRECTIVES = {{}}

def extensions():
    return []
"""


def test_of_two_that_want_a_tree_one_compiles_it(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """As a count and a test do at once; each would delete what the other has."""
    store = tmp_path_factory.mktemp("store")
    (repository / "kafkalog" / "_core").mkdir(parents=True)
    (repository / "kafkalog" / "_core" / "a.pxd").touch()
    (repository / "pyproject.toml").touch()
    (repository / "setup.py").write_text(SLOW_SCRIPT.format(mark=str(store / "mark")))
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "a script")
    commit = named(repository, "HEAD")
    with ThreadPoolExecutor(2) as threads:
        trees = [*threads.map(lambda _: make_base(commit, head=repository, store=store), range(2))]
    assert trees[0] == trees[1] and (trees[0] / "kafkalog" / "_core" / "a.pxd").exists()


def copied(tmp_path: Path) -> Path:
    core = tmp_path / "kafkalog" / "_core"
    core.mkdir(parents=True)
    sources = SOURCES / "kafkalog" / "_core"
    for file in sources.rglob("*"):
        if file.suffix in (".pyx", ".pxd", ".h"):
            place = core / file.relative_to(sources)
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, place)
    shutil.copyfile(SOURCES / "setup.py", tmp_path / "setup.py")
    return tmp_path


def changed(tree: Path, before: dict[str, str]) -> set[str]:
    return {name for name, key in module_keys(tree).items() if before[name] != key}


def test_a_module_is_compiled_anew_where_anything_changed_that_goes_into_it(tmp_path: Path) -> None:
    tree = copied(tmp_path)
    core, before = tree / "kafkalog" / "_core", module_keys(SOURCES)
    assert before and not changed(tree, before)
    varint, kcrc = core / "bytes" / "varint.pyx", core / "bytes" / "kcrc.h"
    varint.write_text(varint.read_text() + "\n")
    assert changed(tree, before) == {"bytes/varint"}
    header = kcrc.read_text()
    kcrc.write_text(header + "\n")
    assert {"bytes/varint", "bytes/crc", "batch/scan", "batch/encode"} <= changed(tree, before) < set(before)
    kcrc.write_text(header)
    script = (tree / "setup.py").read_text()
    (tree / "setup.py").write_text(script.replace("-O3", "-O2"))
    assert changed(tree, before) == set(before)
    (tree / "setup.py").write_text(script.replace("{CORE}.shared", "{CORE}.common"))
    assert changed(tree, before | {"common": ""}) == set(before) - {"shared"} | {"common"}
