"""The package and its dependencies as one file, for executors that do not have it installed.

Spark unpacks `spark.archives=env.tar.gz#env` into `env` in each executor's working directory, and
`spark.executorEnv.PYTHONPATH=env` puts it on Python's path. Compiled modules need this: they cannot be loaded from the
zip files of `spark.submit.pyFiles`. The executors' Python must have the minor version and platform of the one that made
the archive.
"""

from __future__ import annotations

import os
import re
import tarfile
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.errors import MissingPackage, MissingRequirement, StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("kafkalog", "pyspark_kafkalog")
NOT_SHIPPED = {"pyspark", "py4j"}  # every executor has Spark's own copies
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LEVEL = 1  # higher levels hardly shrink machine code, and take ten times as long


class Archive(NamedTuple):
    """A written archive: its path, the distributions in it, its number of files, its size in bytes."""

    path: Path
    distributions: tuple[str, ...]
    files: int
    size: int


def requirements(name: str, extra: str | None) -> Iterator[str]:
    """Yield the names that an installed distribution requires, including those of `extra`.

    A requirement with a condition (another platform, another Python) is ignored unless it is installed.
    """
    for line in metadata.requires(name) or ():
        wanted, _, condition = line.partition(";")
        if "extra" in condition and (extra is None or f'"{extra}"' not in condition.replace("'", '"')):
            continue
        required = NAME.match(wanted)
        assert required is not None, line
        found = normalized_name(required[0])
        if not condition or "extra" in condition or is_installed(found):
            yield found


def normalized_name(name: str) -> str:
    """Normalize a distribution's name as package indexes do."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_installed(name: str) -> bool:
    """Return True if a distribution of that name is installed."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def closure() -> list[str]:
    """Return every distribution that the package needs on an executor, except itself.

    Raises MissingPackage for one that is not installed here.
    """
    found: set[str] = set()
    waiting = list(requirements("kafkalog", "spark"))
    while waiting:
        name = waiting.pop()
        if name in found | NOT_SHIPPED:
            continue
        if not is_installed(name):
            raise MissingPackage(f"{name} is not installed here", hint="pip install 'kafkalog[spark]'")
        found.add(name)
        waiting.extend(requirements(name, None))
    return sorted(found)


def own_files() -> Iterator[tuple[Path, str]]:
    """Yield the files of the imported package, installed or built in place, and their names in the archive."""
    for package in PACKAGES:
        origin = import_module(package).__file__
        assert origin is not None
        root = Path(origin).parent
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix in (".py", ".so") or path.name == "py.typed":
                yield path, str(path.relative_to(root.parent))


def files_of(name: str) -> Iterator[tuple[Path, str]]:
    """Yield the files of a distribution below its packages' directory; scripts, which lie elsewhere, are left out.

    Raises MissingRequirement for a distribution without a list of its files.
    """
    files = metadata.files(name)
    if files is None:
        raise MissingRequirement(
            f"{name} is installed without a list of its files (RECORD)", hint=f"pip install --force-reinstall {name}"
        )
    for file in files:
        path = Path(os.fspath(file.locate()))
        if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
            yield path, str(file)


def write_archive(target: Path | str, *, dependencies: bool = True) -> Archive:
    """Write a .tar.gz of kafkalog and, with `dependencies`, of all it depends on except Spark; return its facts.

    Raises MissingRequirement if a dependency is not installed here or has no list of its files, StorageError if the
    file cannot be written. An existing target is replaced at the end.
    """
    target = Path(target)
    names = closure() if dependencies else []
    count = 0
    part = target.with_name(target.name + ".part")
    try:
        with tarfile.open(part, "w:gz", compresslevel=LEVEL) as archive:
            for source in (own_files(), *map(files_of, names)):
                for path, name in source:
                    archive.add(path, name, recursive=False)
                    count += 1
        os.replace(part, target)
    except OSError as error:
        raise StorageError.from_os(error, "write the archive", path=str(target)) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return Archive(target, ("kafkalog", *names), count, target.stat().st_size)
