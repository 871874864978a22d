"""A compiler of a copy of this tree, which compiles no source again that the tree's modules were just made from.

    python known_sources.py TREE COMPILER ARGUMENT...

Whether a source is known is a matter of its bytes and of those of all that it includes, so what a copy lacks is found.
The object of a known source only names the tree's module, and to link it is to copy that. Anything else is compiled and
linked as usual, without optimisations, which would only take time.
"""

import os
import shlex
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

C_SOURCES = "build/cython"
"""Where setup.py puts them."""
MARK = b"known_sources.py: "


def find_module(tree: Path, source: Path) -> Path | None:
    """Return the module that lies in the tree since its file `source` was compiled; None if there is no such module."""
    try:
        made = (tree / source.relative_to(C_SOURCES)).with_suffix(EXTENSION_SUFFIXES[0])
        return made if made.stat().st_mtime >= (tree / source).stat().st_mtime else None
    except (ValueError, FileNotFoundError):
        return None


def is_known(tree: Path, command: list[str]) -> bool:
    """Return True if the source, and each file of the package that it includes, is that of the tree."""
    done = subprocess.run([*command, "-M"], capture_output=True, text=True)
    words = done.stdout.replace("\\\n", " ").split()[1:]
    used = [Path(word) for word in words if not os.path.isabs(word)]
    return done.returncode == 0 and bool(used) and all(
        (tree / path).is_file() and (tree / path).read_bytes() == path.read_bytes() for path in used
    )  # fmt: skip


def main(tree: Path, compiler: list[str], arguments: list[str]) -> None:
    """Compile or link, whichever the arguments ask for."""
    out = Path(arguments[arguments.index("-o") + 1])
    if "-c" in arguments:
        source = Path(arguments[arguments.index("-c") + 1])
        module = find_module(tree, source)
        plain = [one for one in arguments if one not in ("-c", "-o", str(out))]
        if module is not None and is_known(tree, [*compiler, *plain]):
            out.write_bytes(MARK + os.fsencode(module))
            return
    else:
        objects = [Path(one) for one in arguments if one.endswith(".o")]
        data = objects[0].read_bytes() if len(objects) == 1 else b""
        if data.startswith(MARK):
            shutil.copyfile(os.fsdecode(data.removeprefix(MARK)), out)
            return
    command = [*compiler, *arguments, "-O0"]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(Path(sys.argv[1]), shlex.split(sys.argv[2]), sys.argv[3:])
