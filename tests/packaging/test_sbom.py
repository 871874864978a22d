"""The bill of materials has every package with its licence, and one without is an error that names it."""

import importlib.metadata
import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "ci" / "sbom.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="runs in the source tree")


def component(name: str, *licences: str) -> dict[str, Any]:
    stated = [{"license": {"name": one} if "::" in one else {"id": one}} for one in licences]
    return {"name": name, "version": "1", "type": "library", "bom-ref": f"{name}==1", "licenses": stated}


def bill(*components: dict[str, Any]) -> dict[str, Any]:
    ours = component("kafkalog", "Apache-2.0")
    graph = [{"ref": "kafkalog==1", "dependsOn": [one["bom-ref"] for one in components]}]
    return {"components": [ours, *components], "metadata": {}, "dependencies": graph}


def with_licences(bom: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    made: tuple[dict[str, Any], list[str]] = runpy.run_path(str(SCRIPT))["with_licences"](bom)
    return made


def test_a_package_without_a_licence_is_named() -> None:
    silent, vague = component("silent"), component("vague", "License :: OSI Approved :: BSD License")
    _, unknown = with_licences(bill(component("rich", "MIT"), silent, vague))
    assert unknown == ["silent", "vague"]


def test_what_metadata_leaves_out_is_stated_with_its_evidence() -> None:
    made, unknown = with_licences(bill(component("protobuf"), component("async_timeout")))
    assert unknown == []
    assert [one["licenses"] for one in made["components"]] == [
        [{"expression": "BSD-3-Clause"}], [{"expression": "Apache-2.0"}],
    ]  # fmt: skip
    assert all("LICENSE" in one["properties"][0]["value"] for one in made["components"])


def test_kafkalog_is_what_the_bill_is_of_and_installers_are_left_out() -> None:
    made, _ = with_licences(bill(component("pip", "MIT"), component("rich", "MIT")))
    assert made["metadata"]["component"]["name"] == "kafkalog"
    assert [one["name"] for one in made["components"]] == ["rich"]
    assert made["dependencies"] == [{"ref": "kafkalog==1", "dependsOn": ["rich==1"]}]


def test_one_of_two_has_to_be_said() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT), "--output", "x"], capture_output=True, text=True)
    assert done.returncode == 2 and "give a wheel, or --environment" in done.stderr


def used() -> set[str]:
    """The packages of this environment that kafkalog can use, with all its extras."""
    requirements = pytest.importorskip("packaging.requirements")
    found: set[tuple[str, str]] = set()
    waiting = [("kafkalog", "all")]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for one in map(requirements.Requirement, required):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                waiting += [(one.name.lower(), more) for more in (*one.extras, "")]
    return {name for name, _ in found}


def schema_error(bom: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> object:
    """Return what a bill violates of the schema, which cyclonedx-py compares it with as well, or None.

    Its addresses are compared with the expression for URIs: to parse them with the grammar of IRIs takes half a minute.
    """
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from jsonschema import Draft7Validator
    from rfc3986_validator import validate_rfc3986

    def is_uri(value: object) -> bool:
        return not isinstance(value, str) or bool(validate_rfc3986(value, rule="URI_reference"))

    monkeypatch.setitem(Draft7Validator.FORMAT_CHECKER.checkers, "iri-reference", (is_uri, ()))
    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bom))


@pytest.mark.slow
def test_all_that_is_used_here_has_a_licence(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cyclonedx_py", reason="the extra `package` is not installed")
    described = runpy.run_path(str(SCRIPT))["described"](sys.executable, sys.executable, "--no-validate")
    assert schema_error(described, monkeypatch) is None
    broken = component("broken") | {"externalReferences": [{"type": "website", "url": "no address <"}]}
    assert schema_error(described | {"components": [broken]}, monkeypatch) is not None
    _, unknown = with_licences(described)
    assert not {name.lower() for name in unknown} & used()
    assert {"numpy", "crc32c", "cramjam", "click"} <= used()
