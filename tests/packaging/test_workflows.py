"""The hosted workflows: valid, pinned, with no more rights than a step needs, and building what the project says."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="no YAML reader is installed")
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="runs in a clone")
FILES = sorted(FOLDER.glob("*.yml"))
MAY_WRITE = {
    "attest": {"attestations": "write", "id-token": "write"},
    "publish": {"id-token": "write"},
    "release": {"contents": "write"},
}


def jobs() -> list[tuple[str, dict]]:
    found = []
    for path in FILES:
        found += yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].items()
    return found


def wheels() -> dict:
    return yaml.safe_load((FOLDER / "wheels.yml").read_text(encoding="utf-8"))["jobs"]


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_are_what_the_host_reads() -> None:
    pytest.importorskip("check_jsonschema", reason="the extra `package` is not installed")
    run("check_jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, FILES))


def test_an_auditor_finds_nothing() -> None:
    auditor = Path(sys.executable).with_name("zizmor")  # a program, which no import finds
    if not auditor.exists():
        pytest.skip("the extra `package` is not installed")
    command = [auditor, "--offline", "--no-progress", "--persona", "auditor", FOLDER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_action_is_pinned_by_its_commit(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    used = re.findall(r"uses: (.*)", text)
    assert used
    for one in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one), one


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_nothing_is_allowed_that_is_not_asked_for(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["group"]
    for name, job in workflow["jobs"].items():
        allowed = MAY_WRITE.get(name, {"contents": "read"})
        assert job["permissions"] == allowed, name
        assert job["timeout-minutes"] <= 120
        for step in job["steps"]:
            if "actions/checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_every_script_that_is_called_is_there() -> None:
    called = {script for _, job in jobs() for step in job["steps"] for script in re.findall(r"ci/\w+\.\w+", str(step))}
    assert called >= {"ci/test.sh", "ci/bench.sh", "ci/docs.sh", "ci/sbom.py"}
    assert all((ROOT / script).is_file() for script in called)


def test_a_release_is_published_without_a_password_and_after_everything_else() -> None:
    made = wheels()
    (publish,) = [step for step in made["publish"]["steps"] if "pypi-publish" in step["uses"]]
    assert publish["with"]["attestations"] is True
    assert "password" not in publish["with"] and made["publish"]["environment"] == "pypi"
    assert made["publish"]["needs"] == "attest"
    assert set(made["attest"]["needs"]) == {"sdist", "wheels", "sbom"}
    assert all("refs/tags/v" in made[name]["if"] for name in ("attest", "publish"))
    assert made["release"]["needs"] == "publish"
    assert "sbom/kafkalog.cdx.json" in made["release"]["steps"][-1]["run"]


def test_the_wheels_are_those_of_the_configuration_each_on_its_own_machine() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]["build"]
    job = wheels()["wheels"]
    assert job["strategy"]["matrix"]["runner"] == ["ubuntu-24.04", "ubuntu-24.04-arm"]
    assert job["strategy"]["matrix"]["libc"] == ["manylinux", "musllinux"]
    (step,) = [step for step in job["steps"] if "cibuildwheel --" in step.get("run", "")]
    assert step["env"]["CIBW_BUILD"] == build.replace("-*", "-${{ matrix.libc }}*")
    assert step["env"]["CIBW_ARCHS"] == "native"
