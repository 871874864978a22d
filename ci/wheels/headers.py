"""C headers of a target's Python, from a registry that has them for its machine, or from this machine."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import debian, maven
from .command import Failed, run
from .targets import Target

VERSION = re.compile(r'^#define\s+PY_VERSION\s+"([^"]+)"', re.MULTILINE)
ASK_INCLUDE = "import sysconfig; print(sysconfig.get_path('include'))"
FREE_THREADED = re.compile(r"^#define\s+Py_GIL_DISABLED\s+1", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Headers:
    """Folders to be searched for headers, the version they are of, and where they were had from."""

    include_dirs: tuple[Path, ...]
    version: str
    origin: str


def find_headers(target: Target, cache: Path, log: Path) -> Headers:
    """Return the headers of the target's Python from the first source that has them; `Failed` if none has them.

    No registry has those of a free-threaded Python: ci/free_threaded.sh builds one.
    """
    reasons = []
    sources = [("Debian", debian.include_dirs), ("Maven", maven.include_dirs), ("this machine", local)]
    for origin, source in sources[-1:] if target.python.endswith("t") else sources:
        try:
            return checked(source(target, cache, log), target, origin)
        except Failed as failed:
            reasons.append(f"{origin}: {str(failed).splitlines()[0]}")
    raise Failed("no headers; " + "; ".join(reasons))


def checked(folders: tuple[Path, ...], target: Target, origin: str) -> Headers:
    """Return the folders as `Headers`; raise `Failed` if they have no headers, or those of another Python."""
    level = folders[0] / "patchlevel.h"
    if not level.is_file() or not (folders[0] / "Python.h").is_file():
        raise Failed(f"no headers in {folders[0]}")
    found = VERSION.search(level.read_text(encoding="utf-8"))
    if found is None or not found[1].startswith(f"{target.python.rstrip('t')}."):
        raise Failed(f"{folders[0]} has the headers of {found[1] if found else 'an unknown version'}")
    settings = folders[0] / "pyconfig.h"
    is_free_threaded = settings.is_file() and FREE_THREADED.search(settings.read_text(encoding="utf-8")) is not None
    if is_free_threaded != target.python.endswith("t"):
        raise Failed(f"{folders[0]} has the headers of a Python {'without' if is_free_threaded else 'with'} the GIL")
    return Headers(folders, found[1].rstrip("+"), origin)


def local(target: Target, cache: Path, log: Path) -> tuple[Path, ...]:
    """Return the headers of an interpreter on this machine; for another processor the sizes of C types agree."""
    for program in interpreters(target.python):
        try:
            include = Path(run([program, "-c", ASK_INCLUDE], log).split("\n")[0])
        except Failed:  # a shim of a version that is not chosen
            continue
        if (include / "Python.h").is_file():
            return (include, include.parent)
    raise Failed(f"no python{target.python} with headers")


def interpreters(python: str) -> list[Path]:
    """Return the programs on this machine that are named after a version, those of pyenv first; some may not run."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = sorted(versions.glob(f"{python}.*/bin/python{python}"), reverse=True)
    in_path = shutil.which(f"python{python}")
    return [*found, *([Path(in_path)] if in_path else [])]
