"""Everything that is checked on a finished wheel; a wheel with a fault is not published."""

import re
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import parse_wheel_filename

from . import content, elf, metadata
from .command import Failed, run
from .targets import Target

# W002: two stubs that say as little may well be equal
CONTENT_TOOL = ["check_wheel_contents", "--no-config", "--toplevel", ",".join(content.PACKAGES), "--ignore", "W002"]
PLATFORM = re.compile(r"(manylinux|musllinux)_(\d+)_(\d+)_(\w+)")


@dataclass(frozen=True, slots=True)
class Checked:
    """Findings in a wheel: its faults (none in a good one), and figures for the table."""

    faults: list[str]
    size: int
    newest_glibc: str


def check_wheel(wheel: Path, target: Target, tree: Path, build_paths: list[Path]) -> Checked:
    """Check the content, the metadata and every compiled module of `wheel`, built from the unpacked sdist `tree`.

    `build_paths` are the folders that it was built in, none of which may be named in any file.
    """
    project = metadata.Project.read(tree)
    name, version, _, tags = parse_wheel_filename(wheel.name)
    dist_info = f"{name.replace('-', '_')}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        names = [one for one in archive.namelist() if not one.endswith("/")]
        files = {one: archive.read(one) for one in names}
    tag_names = frozenset(str(tag) for tag in tags)
    found = content.faults(names, content.expected_names(tree, target, dist_info), dist_info)
    found += content.untyped(names, target)
    if (size := wheel.stat().st_size) >= content.MOST_BYTES:
        found.append(f"has {size} bytes, {content.MOST_BYTES} or more")
    found += metadata.tag_faults(tag_names, target)
    found += said_faults(files, dist_info, project, str(version), tag_names)
    found += path_faults(files, build_paths)
    modules, wrong = read_modules(files)
    found += wrong
    for module_name, module in modules.items():
        short = Path(module_name).name.split(".")[0]
        found += [f"{module_name} {fault}" for fault in elf.faults(module, target, short)]
    return Checked(found, size, elf.newest_glibc(list(modules.values())))


def said_faults(
    files: dict[str, bytes], dist_info: str, project: metadata.Project, version: str, tags: frozenset[str]
) -> list[str]:
    """Return the faults of the files in the folder of metadata; missing files are reported elsewhere."""
    found = []
    if (data := files.get(f"{dist_info}/METADATA")) is not None:
        found += metadata.metadata_faults(data, project, version)
    if (data := files.get(f"{dist_info}/WHEEL")) is not None:
        found += metadata.wheel_faults(data.decode(), tags)
    if (data := files.get(f"{dist_info}/RECORD")) is not None:
        found += metadata.record_faults(data.decode(), files, f"{dist_info}/RECORD")
    if (data := files.get(f"{dist_info}/entry_points.txt")) is not None:
        found += metadata.entry_point_faults(data.decode(), project)
    return found


def path_faults(files: dict[str, bytes], build_paths: list[Path]) -> list[str]:
    """Return a fault for each file that names a folder of the machine it was built on."""
    return [
        f"{name} names the build folder {path}"
        for name, data in files.items() for path in build_paths if str(path).encode() in data
    ]  # fmt: skip


def read_modules(files: dict[str, bytes]) -> tuple[dict[str, elf.Module], list[str]]:
    """Return the facts of all compiled modules by name, and a fault for each that cannot be read."""
    modules, found = {}, []
    for name, data in files.items():
        if name.endswith(".so"):
            try:
                modules[name] = elf.read_module(data)
            except ValueError as error:
                found.append(f"{name}: {error}")
    return modules, found


def ask_tools(wheel: Path, target: Target, log: Path) -> list[str]:
    """Return the faults found by twine and check-wheel-contents, and the platform that auditwheel reports."""
    found = []
    for command in (["twine", "check", "--strict"], CONTENT_TOOL):
        try:
            run([sys.executable, "-m", *command, wheel], log)
        except Failed as failed:
            found.append(str(failed))
    try:
        shown = run([sys.executable, "-m", "auditwheel", "show", wheel], log)
    except Failed as failed:
        return [*found, str(failed)]
    stated = re.search(r'platform tag: "([^"]+)"', " ".join(shown.split()))
    if stated is None or not runs_on(stated[1], target):
        found.append(f"auditwheel show finds {stated[1] if stated else shown}, which does not cover {target.platform}")
    return found


def runs_on(platform: str, target: Target) -> bool:
    """Return True if a wheel for `platform` runs wherever the target's platform is promised: same kind, not newer."""
    needed, promised = PLATFORM.fullmatch(platform), PLATFORM.fullmatch(target.platform)
    if needed is None or promised is None or (needed[1], needed[4]) != (promised[1], promised[4]):
        return False
    return (int(needed[2]), int(needed[3])) <= (int(promised[2]), int(promised[3]))
