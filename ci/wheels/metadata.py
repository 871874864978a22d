"""METADATA, WHEEL, RECORD and the entry points of a wheel, compared with pyproject.toml."""

import base64
import configparser
import csv
import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.metadata import InvalidMetadata, Metadata
from packaging.requirements import Requirement

from .targets import Target


@dataclass(frozen=True, slots=True)
class Project:
    """The package as pyproject.toml describes it."""

    name: str
    license: str
    requires_python: str
    classifiers: frozenset[str]
    requirements: frozenset[str]
    scripts: dict[str, str]

    @classmethod
    def read(cls, tree: Path) -> "Project":
        """From the pyproject.toml of an unpacked sdist."""
        with (tree / "pyproject.toml").open("rb") as file:
            project: dict[str, Any] = tomllib.load(file)["project"]
        return cls(
            project["name"], project["license"], project["requires-python"], frozenset(project["classifiers"]),
            frozenset(canonical(one) for one in project["dependencies"]), project["scripts"],
        )  # fmt: skip


def canonical(requirement: str) -> str:
    """Return a requirement with normalized spaces and quotes."""
    return str(Requirement(requirement))


def metadata_faults(text: bytes, project: Project, version: str) -> list[str]:
    """Return what is wrong or missing in METADATA; the fields are first checked against the standard."""
    try:
        read = Metadata.from_email(text, validate=True)
    except (ExceptionGroup, InvalidMetadata) as error:
        return [f"METADATA is not valid: {error}"]
    said = {
        "Name": (read.name, project.name),
        "Version": (str(read.version), version),
        "License-Expression": (read.license_expression, project.license),
        "License-File": (read.license_files, ["LICENSE"]),
        "Requires-Python": (str(read.requires_python), project.requires_python),
        "Classifier": (frozenset(read.classifiers or []), project.classifiers),
        "Requires-Dist": (
            frozenset(str(one) for one in read.requires_dist or [] if "extra ==" not in str(one)), project.requirements,
        ),
    }  # fmt: skip
    return [f"METADATA says {field}: {is_}, not {wanted}" for field, (is_, wanted) in said.items() if is_ != wanted]


def wheel_faults(text: str, tags: frozenset[str]) -> list[str]:
    """Return where WHEEL differs from the file's name (`tags`, such as cp311-cp311-manylinux_2_17_x86_64)."""
    lines = [line.partition(": ") for line in text.splitlines()]
    said = frozenset(value for name, _, value in lines if name == "Tag")
    found = [] if said == tags else [f"WHEEL has the tags {sorted(said)}, the file's name {sorted(tags)}"]
    if ("Root-Is-Purelib", ": ", "false") not in lines:
        found.append("WHEEL does not say Root-Is-Purelib: false")
    return found


def tag_faults(tags: frozenset[str], target: Target) -> list[str]:
    """Return a fault unless one of the tags is the target's own and all are for its Python and its machine."""
    own = f"{target.python_tag}-{target.interpreter_tag}-{target.platform}"
    found = [] if own in tags else [f"has the tags {sorted(tags)}, not {own}"]
    start = f"{target.python_tag}-{target.interpreter_tag}-{target.libc}"
    return found + [f"has the tag {tag}" for tag in sorted(tags)
                    if not (tag.startswith(start) and tag.endswith(target.machine))]  # fmt: skip


def record_faults(text: str, files: dict[str, bytes], record: str) -> list[str]:
    """Return where RECORD and the files differ: names, SHA-256 and sizes."""
    rows = {row[0]: (row[1], row[2]) for row in csv.reader(text.splitlines()) if len(row) == 3}
    found = [f"RECORD lacks {name}" for name in sorted(files.keys() - rows.keys())]
    found += [f"RECORD has {name}, which is not there" for name in sorted(rows.keys() - files.keys())]
    for name in sorted(files.keys() & rows.keys() - {record}):
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        if rows[name] != (f"sha256={digest}", str(len(files[name]))):
            found.append(f"RECORD has another hash or size of {name}")
    return found


def entry_point_faults(text: str, project: Project) -> list[str]:
    """Return a fault if the commands are not those of pyproject.toml."""
    parser = configparser.ConfigParser()
    parser.read_string(text)
    said = dict(parser["console_scripts"]) if "console_scripts" in parser else {}
    return [] if said == project.scripts else [f"entry_points.txt says {said}, not {project.scripts}"]
