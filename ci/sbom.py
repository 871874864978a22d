"""Writes the bill of materials of a wheel: every package it can use, with version and licence (CycloneDX 1.6, JSON).

    python ci/sbom.py dist/kafkalog-*.whl --output kafkalog.cdx.json
    python ci/sbom.py --environment .venv/bin/python --output kafkalog.cdx.json

The wheel is installed with all its extras into an environment of its own, which the well-kept `cyclonedx-py` reads.
A package without a stated licence is an error: its metadata, or `STATED` below, has to say it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

OURS = "kafkalog"
TOOL = "cyclonedx-bom>=7,<8"
NOT_USED = {"pip", "setuptools", "wheel"}
# name -> (SPDX expression, where that stands), for packages whose metadata says nothing, or no more than "BSD"
STATED = {
    "async-timeout": ("Apache-2.0", "LICENSE in its wheel"),
    "contourpy": ("BSD-3-Clause", "LICENSE in its wheel"),
    "crc32c": ("LGPL-2.1-or-later", "License field; SPDX expression of its classifier"),
    "cycler": ("BSD-3-Clause", "LICENSE in its wheel: three clauses"),
    "kiwisolver": ("BSD-3-Clause", "LICENSE in its wheel: Modified BSD"),
    "pandas": ("BSD-3-Clause", "LICENSE in its wheel"),
    "protobuf": ("BSD-3-Clause", "LICENSE in its wheel: three clauses"),
    "py4j": ("BSD-3-Clause", "LICENSE.txt in its wheel: three clauses"),
    "pyrage": ("MIT", "LICENSE in its wheel"),
    "python-dateutil": ("(Apache-2.0 AND BSD-3-Clause) OR BSD-3-Clause", "LICENSE in its wheel"),
    "uvloop": ("MIT OR Apache-2.0", "LICENSE-MIT and LICENSE-APACHE in its wheel"),
}


def described(python: str, tool: str, *options: str) -> dict:
    """Return the environment of the interpreter `python`, as reported by cyclonedx-py, which `tool` runs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bom.json"
        command = [tool, "-m", "cyclonedx_py", "environment", "--of", "JSON", "--sv", "1.6", *options]
        subprocess.run([*command, "--output-reproducible", "-o", str(file), python], check=True)
        return json.loads(file.read_text(encoding="utf-8"))


def licences_of(component: dict) -> list[str]:
    """Return the SPDX expressions, ids and names that a component has."""
    found = []
    for each in component.get("licenses", []):
        licence = each.get("license", {})
        found.append(each.get("expression") or licence.get("id") or licence.get("name"))
    return [one for one in found if one]


def is_stated(licences: list[str]) -> bool:
    """True where one of them says more than the kind of licence that a classifier names."""
    return any(not one.startswith("License :: ") for one in licences)


def with_licences(bom: dict) -> tuple[dict, list[str]]:
    """Return the bill with the licences of `STATED`, without the tools, and the packages without a licence."""
    unknown = []
    used = [one for one in bom["components"] if one["name"].lower() not in NOT_USED]
    refs = {one["bom-ref"] for one in used}
    for component in used:
        name = component["name"].lower().replace("_", "-")
        if name in STATED:
            expression, evidence = STATED[name]
            component["licenses"] = [{"expression": expression}]
            note = {"name": "kafkalog:licence-evidence", "value": evidence}
            component["properties"] = [*component.get("properties", []), note]
        elif not is_stated(licences_of(component)):
            unknown.append(component["name"])
    ours = [one for one in used if one["name"] == OURS]
    bom["metadata"]["component"] = {**ours[0], "type": "library"} if ours else {"type": "library", "name": OURS}
    bom["components"] = [one for one in used if one not in ours]
    graph = [one for one in bom.get("dependencies", []) if one["ref"] in refs]
    bom["dependencies"] = [
        {**one, "dependsOn": [ref for ref in one["dependsOn"] if ref in refs]} if "dependsOn" in one else one
        for one in graph
    ]
    return bom, unknown


def python_of(folder: str) -> str:
    """Return the interpreter of an environment."""
    return os.path.join(folder, "bin", "python")


def installed(folder: str, *requirements: str) -> str:
    """Return the interpreter of a new environment in `folder` with these requirements."""
    venv.create(folder, with_pip=True)
    subprocess.run([python_of(folder), "-m", "pip", "install", "-q", *requirements], check=True)
    return python_of(folder)


def main() -> int:
    """Write the bill and return 0; return 1 if a licence is unknown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", nargs="?", help="installed with all extras into an environment of its own")
    parser.add_argument("--environment", metavar="PYTHON", help="describe the environment of this interpreter instead")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    if (given.wheel is None) == (given.environment is None):
        parser.error("give a wheel, or --environment")
    with tempfile.TemporaryDirectory(prefix="kafkalog-sbom-") as scratch:
        known = subprocess.run([sys.executable, "-c", "import cyclonedx_py"], capture_output=True).returncode == 0
        tool = sys.executable if known else installed(os.path.join(scratch, "tool"), TOOL)
        python = given.environment
        if python is None:
            wheel = os.path.abspath(given.wheel)
            python = installed(os.path.join(scratch, "used"), f"{OURS}[all] @ file://{wheel}")
        bom, unknown = with_licences(described(python, tool))
    if unknown:
        names = ", ".join(sorted(unknown))
        print(f"no licence is known of {names}: read it, and add it to STATED in {__file__}", file=sys.stderr)
        return 1
    given.output.write_text(json.dumps(bom, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{given.output}: {len(bom['components'])} packages, each with its licence")
    return 0


if __name__ == "__main__":
    sys.exit(main())
