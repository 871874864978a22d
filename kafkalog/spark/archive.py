"""The package and what it depends on as one file, for executors that do not have it installed.

Spark unpacks `spark.archives=env.tar.gz#env` into `env` in the directory that each executor runs in, and
`spark.executorEnv.PYTHONPATH=env` lets its Python find what is there. Compiled modules need this: they cannot be
loaded from the zip files that `spark.submit.pyFiles` takes. The executors' Python has to be of the same minor
version and platform as the one that made the archive.
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

__all__ = ["Archive", "write_archive"]

PACKAGES = ("kafkalog", "pyspark_kafkalog")
NOT_SHIPPED = {"pyspark", "py4j"}  # every executor has Spark's own
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LEVEL = 1  # machine code hardly gets smaller at higher ones, and takes ten times as long


class Archive(NamedTuple):
    """An archive that was written: where, which distributions are in it, how many files, its size in bytes."""

    path: Path
    distributions: tuple[str, ...]
    files: int
    size: int


def requirements(name: str, extra: str | None) -> Iterator[str]:
    """The names that an installed distribution requires, those of `extra` among them.

    A requirement with a condition (another platform, another Python) that is not installed does not count.
    """
    for line in metadata.requires(name) or ():
        wanted, _, condition = line.partition(";")
        if "extra" in condition and (extra is None or f'"{extra}"' not in condition.replace("'", '"')):
            continue
        required = NAME.match(wanted)
        assert required is not None, line
        found = normal(required[0])
        if not condition or "extra" in condition or is_installed(found):
            yield found


def normal(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_installed(name: str) -> bool:
    """Whether there is a distribution of that name."""
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def closure() -> list[str]:
    """Every distribution that the package needs on an executor, itself left out; MissingRequirement for one that is
    not installed here.
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
    """The files of the package as it is imported here, installed or built in place, and their names in the archive."""
    for package in PACKAGES:
        origin = import_module(package).__file__
        assert origin is not None
        root = Path(origin).parent
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.suffix in (".py", ".so") or path.name == "py.typed":
                yield path, str(path.relative_to(root.parent))


def files_of(name: str) -> Iterator[tuple[Path, str]]:
    """The files that a distribution has put beside its packages; scripts, which go elsewhere, are left out.

    MissingRequirement for one that does not say which files it has.
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
    """Writes a .tar.gz of kafkalog and, unless told not to, of all it depends on but Spark; returns what is in it.

    MissingRequirement where a dependency is not installed here, or without a list of its files, StorageError where the
    file cannot be written. A target that is there is replaced at the end.
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
