"""Build, repair and check the wheels of the commit that is checked out: `bash ci/build_wheels.sh --help`."""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from .build import build_wheel
from .check import ask_tools, check_wheel
from .command import Failed
from .headers import find_headers
from .report import Row, sha256_of, table
from .source import checked_out
from .targets import Target, chosen
from .trial import NotRun, try_wheel
from .workshop import Workshop, say

ROOT = Path(__file__).resolve().parents[2]


def make(target: Target, shop: Workshop, cache: Path) -> Row:
    """Build one wheel and check it; what goes wrong stands in the row."""
    row, began_s = Row(target), time.monotonic()
    try:
        headers = find_headers(target, cache, shop.log)
        row.headers = f"{headers.version} ({headers.origin})"
        row.wheel = build_wheel(target, headers, shop)
    except Failed as failed:
        row.reason = str(failed)
        return row
    checked = check_wheel(row.wheel, target, shop.tree, [shop.work, cache, ROOT, Path(sys.prefix)])
    row.faults = checked.faults + ask_tools(row.wheel, target, shop.log)
    row.size, row.newest_glibc, row.sha256 = checked.size, checked.newest_glibc, sha256_of(row.wheel)
    row.seconds = time.monotonic() - began_s
    return row


def make_again(rows: list[Row], first: Workshop, second: Workshop, cache: Path) -> list[str]:
    """Build each made wheel again elsewhere. A wheel with other bytes has a fault; that of an sdist is returned."""
    for row in rows:
        if row.wheel is None:
            continue
        again = build_wheel(row.target, find_headers(row.target, cache, second.log), second)
        if sha256_of(again) != row.sha256:
            row.faults.append(f"is not the same when built twice: {again}")
        say(f"{row.target.name} again: {'the same' if sha256_of(again) == row.sha256 else 'NOT THE SAME'}")
    same = sha256_of(first.sdist.path) == sha256_of(second.sdist.path)
    return [] if same else [f"the sdist is not the same when built twice: {second.sdist.path}"]


def try_out(row: Row, options: list[str], shop: Workshop, cache: Path) -> None:
    """Run the tests against the wheel of a row, where there is something to run it with."""
    if row.wheel is None:
        return
    try:
        row.tests = try_wheel(row.target, row.wheel, ROOT, cache, options, shop.log)
    except NotRun as missing:
        row.tests = f"not run: {missing}"
    except Failed as failed:
        row.tests = "FAILED"
        row.faults.append(str(failed))
    say(f"{row.target.name} tests: {row.tests}")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="ci/build_wheels.sh", description=__doc__)
    parser.add_argument("wheels", nargs="*", help="names or parts of them, as cp313 or musllinux_aarch64; none: all")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the wheels, the sdist and the log go")
    parser.add_argument("--twice", action="store_true", help="build all again in another folder and compare the bytes")
    parser.add_argument("--test", metavar="OPTIONS", help="run the tests against each, with these options of pytest")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many modules are compiled at once")
    return parser.parse_args()


def make_all(asked: argparse.Namespace, out: Path, cache: Path, place: Callable[[str], Path]) -> int:
    """Make what is asked for, print the table, write the digests; the exit status."""
    targets = chosen(asked.wheels)
    commit = checked_out(ROOT, out / "build.log")  # once: it may change while this runs
    shop = Workshop.open(ROOT, commit, place("first"), out, cache / "zig", asked.jobs)
    rows = []
    for target in targets:
        rows.append(make(target, shop, cache))
        say(f"{target.name}: {rows[-1].wheel.name if rows[-1].wheel else rows[-1].reason.splitlines()[0]}")
    wrong = []
    if asked.twice:  # with a cache of its own, or the compiler would hand out what it made before
        folder = place("second of two, at another depth")
        (folder / "out").mkdir()
        second = Workshop.open(ROOT, commit, folder, folder / "out", folder / "zig", asked.jobs)
        wrong = make_again(rows, shop, second, cache)
    if asked.test is not None:
        for row in rows:
            try_out(row, shlex.split(asked.test), shop, cache)
    files = [shop.sdist.path, *(row.wheel for row in rows if row.wheel)]
    (out / "SHA256SUMS").write_text("".join(f"{sha256_of(file)}  {file.name}\n" for file in files), encoding="ascii")
    print("\n".join([table(rows), *wrong]))
    return 0 if not wrong and all(row.tolerable for row in rows) else 1


def main() -> int:
    """Return 1 if a required wheel is missing or a check found a fault, 2 if nothing could be started."""
    asked = arguments()
    out = asked.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    (out / "build.log").unlink(missing_ok=True)
    cache = Path(os.environ["KAFKALOG_WHEELS_CACHE"]).resolve()
    os.umask(0o022)  # a wheel holds the modes of its files
    work = Path(tempfile.mkdtemp(prefix="kafkalog-wheels-"))

    def place(name: str) -> Path:
        folder = work / name.replace(" ", "/")
        folder.mkdir(parents=True)
        return folder

    try:
        return make_all(asked, out, cache, place)
    except (Failed, ValueError) as error:
        print(f"wheels: {error}", file=sys.stderr)
        return 2
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
