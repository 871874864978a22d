"""The commit to compare with, and a tree of its `kafkalog` whose compiled modules are those of this tree where the
sources and flags are the same: that is the same code, and only the others are compiled.
"""

import fcntl
import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / "build" / "bench"
CORE = Path("kafkalog", "_core")
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")


def git(*arguments: str, root: Path = ROOT) -> str | None:
    """Return the output of git without its last newline; None if git fails or is missing."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit_of(name: str, root: Path = ROOT) -> str | None:
    """Return the full name of a commit; None if it does not exist here."""
    return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", root=root)


def choose_base(root: Path = ROOT) -> tuple[str, str] | None:
    """Return (commit, description) of the last release before this tree: the latest reachable tag v*, except at HEAD.

    Without a tag it is where HEAD left the main branch of its origin, and on that branch itself the commit landed
    before: the first parent of HEAD. None in a clone that has no history.
    """
    head = commit_of("HEAD", root)
    for tag in (git("tag", "--list", "v*", "--merged", "HEAD", "--sort=-v:refname", root=root) or "").split():
        if (commit := commit_of(tag, root)) not in (None, head):
            return str(commit), tag
    main = git("merge-base", "HEAD", "origin/HEAD", root=root)
    if main and main != head:
        return main, "where HEAD left the main branch"
    parent = commit_of("HEAD^1", root)
    return (parent, "the commit landed before") if parent else None


def shares_modules(commit: str, root: Path = ROOT) -> bool:
    """Return True if a commit has a compiled module at a path of this tree; else it cannot run today's hot paths."""
    listed = git("ls-tree", "-r", "--name-only", commit, "--", str(CORE), root=root) or ""
    return any(name.endswith(".pyx") and (root / name).is_file() for name in listed.splitlines())


def is_changed() -> bool:
    """Return True if the package in this tree differs from that of HEAD."""
    return bool(git("status", "--porcelain", "--", "kafkalog", "setup.py", "pyproject.toml"))


def tree_of(commit: str) -> Path:
    """Return a directory with the compiled package of a commit: this tree itself if it is at that commit."""
    return ROOT if commit == commit_of("HEAD") and not is_changed() else make_base(commit)


def make_base(commit: str, *, head: Path = ROOT, store: Path = STORE) -> Path:
    """Return a tree of a commit's compiled package; it is kept in `store`. RuntimeError with the output of git or the
    compiler.

    Of several processes one compiles it, and the others wait.
    """
    store.mkdir(parents=True, exist_ok=True)
    with (store / f"{commit[:12]}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made(commit, head, store / commit[:12])


def _made(commit: str, head: Path, tree: Path) -> Path:
    if (tree / "compiled").exists():
        return tree
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = tree / "tree.tar"
    if git("archive", "-o", str(archive), commit, "kafkalog", "setup.py", "pyproject.toml", root=head) is None:
        raise RuntimeError(f"git cannot give the files of {commit}")
    with tarfile.open(archive) as packed:
        packed.extractall(tree, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # 3.11.4 has it
    archive.unlink()
    compile_tree(tree, like=head)
    (tree / "compiled").touch()
    return tree


def compile_tree(tree: Path, *, like: Path = ROOT) -> list[str]:
    """Compile the modules that differ from those of a compiled tree, and copy the others; return the names compiled."""
    known = {key: name for name, key in module_keys(like).items()}
    changed = []
    for name, key in module_keys(tree).items():
        there = like / CORE / f"{known.get(key)}{SUFFIX}"
        if key in known and there.exists():
            shutil.copyfile(there, tree / CORE / f"{name}{SUFFIX}")
        else:
            changed.append(name)
    version = like / "kafkalog" / "_version.py"
    if version.exists() and not (tree / "kafkalog" / "_version.py").exists():
        shutil.copyfile(version, tree / "kafkalog" / "_version.py")
    if changed:
        command = [sys.executable, __file__, *changed]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{tree} cannot be compiled: {(done.stderr + done.stdout)[-2000:]}")
    return changed


def module_keys(tree: Path) -> dict[str, str]:
    """Return a hash for each compiled module by its path in `_core`: of its sources, their includes and its flags."""
    core = tree / CORE
    script = _script(tree)
    files = sorted(path for path in core.rglob("*") if path.suffix in (".pyx", ".pxd", ".h"))
    texts = {str(path.relative_to(core)): path.read_bytes() for path in files}
    named = _names(texts)
    keys = {}
    for extension in script["extensions"]():
        name = _path_of(extension.name)
        how = (script["DIRECTIVES"], script.get("SHARED"), extension.extra_compile_args, SUFFIX)
        held = hashlib.sha256(repr(how).encode())
        is_ours = f"{name}.pyx" in texts  # and not made by Cython alone, out of what is in `how`
        for file in sorted(_taken_in(f"{name}.pyx", named)) if is_ours else ():
            held.update(file.encode() + b"\0" + texts[file])
        keys[name] = held.hexdigest()
    return keys


def _taken_in(file: str, named: dict[str, set[str]]) -> set[str]:
    """Return a source and every file of `_core` that it names as a word, recursively: too many rather than too few."""
    found, waiting = set(), [file]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += named[one]
    return found


def _names(texts: dict[str, bytes]) -> dict[str, set[str]]:
    """Return for each file the headers and declarations that it names, and those that go by its own name."""
    by_word: dict[bytes, set[str]] = {}
    for file in texts:
        if not file.endswith(".pyx"):
            by_word.setdefault(Path(file).stem.encode(), set()).add(file)
    words = {file: {*re.findall(rb"\w+", text), Path(file).stem.encode()} for file, text in texts.items()}
    return {file: set().union(*map(by_word.__getitem__, found & by_word.keys())) for file, found in words.items()}


def _path_of(module: str) -> str:
    return module.removeprefix("kafkalog._core.").replace(".", "/")


def _script(tree: Path) -> dict[str, Any]:
    return runpy.run_path(str(tree / "setup.py"))


def _build(names: list[str]) -> None:
    """Compile the named modules in the current directory with its own setup script."""
    from setuptools import setup

    script = _script(Path.cwd())
    wanted = [one for one in script["extensions"]() if _path_of(one.name) in names]
    jobs = f"-j{min(len(names), len(os.sched_getaffinity(0)))}"
    setup(
        name="kafkalog", ext_modules=script["compiled"](wanted), script_args=["-q", "build_ext", "--inplace", jobs],
    )  # fmt: skip


if __name__ == "__main__":
    _build(sys.argv[1:])
