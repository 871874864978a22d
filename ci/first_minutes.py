"""Runs the examples of a document with the installed kafkalog, and prints them as they go: first_minutes.py DOCUMENT

The reading of blocks and the comparing of outputs is that of the tests (tests/documents.py), which lies beside it.
"""

import platform
import sys
import sysconfig
import time
from pathlib import Path

FEWEST_STEPS = 12
HERE = Path(__file__).resolve().parent.parent


def main(readme: Path) -> None:
    """Run every block that is not left out, in order, in the working directory; AssertionError for a wrong output."""
    import kafkalog

    where = Path(kafkalog.__file__)
    assert where.is_relative_to(sysconfig.get_path("platlib")), f"kafkalog comes from {where}"
    sys.path.append(str(HERE / "tests"))  # at the end: some folders there have names of modules of Python
    import documents  # a file of its own: neither pytest nor the package's sources are needed

    from kafkalog._core.bytes import crc

    python = f"Python {platform.python_version()} on {platform.machine()}"
    print(f"kafkalog {kafkalog.__version__}, {python}, checksums by {crc.implementation()}")
    began, count, steps = time.monotonic(), 0, 0
    names: dict[str, object] = {}
    for block in documents.blocks_of(readme.read_text(encoding="utf-8")):
        if block.left_out or block.language not in ("console", "python"):
            continue
        print(block.text, flush=True)
        name = f"{readme.name}:{block.line}"
        if block.language == "console":
            documents.run_console(block, name, Path.cwd(), documents.output_by_bash)
            names = {}  # who goes back to the shell has left Python
        else:
            documents.run_python(block, name, names)
        count += 1
        steps += sum(line.startswith(("$ ", ">>> ")) for line in block.text.splitlines())
    assert steps >= FEWEST_STEPS, f"{readme} has only {steps} commands and examples"
    print(f"{count} blocks of {readme.name} did what it says, in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
