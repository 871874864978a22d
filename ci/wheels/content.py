"""The files a wheel must hold, derived from the sdist it was built from: no more and no less."""

from pathlib import Path

from .targets import Target

PACKAGES = ("kafkalog", "pyspark_kafkalog")
KEPT = {".py", ".pyi"}
MARKERS = {"py.typed"}
METADATA = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt", "licenses/LICENSE")
BILLS = "sboms/"  # bills of materials (PEP 770) may lie beside the metadata, and differ by tool
MOST_BYTES = 6_000_000


def expected_names(tree: Path, target: Target, dist_info: str) -> set[str]:
    """Return the names of all files in the wheel for `target`, from the unpacked sdist `tree`."""
    names = {f"{dist_info}/{name}" for name in METADATA}
    for package in PACKAGES:
        for file in (tree / package).rglob("*"):
            inside = file.relative_to(tree)
            if file.suffix in KEPT or file.name in MARKERS:
                names.add(inside.as_posix())
            is_compiled = file.suffix == ".pyi" and not file.with_suffix(".py").exists()  # of one there is no .pyx
            if is_compiled or file.suffix == ".pyx":
                names.add(inside.with_suffix(target.suffix).as_posix())
    return names


def faults(names: list[str], expected: set[str], dist_info: str) -> list[str]:
    """Return the names that are missing, unexpected, or there twice."""
    there = {name for name in names if not name.startswith(f"{dist_info}/{BILLS}")}
    found = [f"lacks {name}" for name in sorted(expected - there)]
    found += [f"holds {name}, which is not expected" for name in sorted(there - expected)]
    return found + [f"holds {name} twice" for name in sorted({name for name in names if names.count(name) > 1})]


def untyped(names: list[str], target: Target) -> list[str]:
    """Return a fault for each compiled module without a stub beside it, and for a package without its marker."""
    there = set(names)
    found = [f"has no stub for {name}" for name in names
             if name.endswith(target.suffix) and f"{name.removesuffix(target.suffix)}.pyi" not in there]  # fmt: skip
    return found + [f"lacks {package}/py.typed" for package in PACKAGES[:1] if f"{package}/py.typed" not in there]
