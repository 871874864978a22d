"""The sdist of this commit, built by this machine's own compiler, installed into an empty environment and used."""

import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

from tests.packaging.checkout import in_a_checkout
from tests.trees import SOURCES

KNOWN_SOURCES = Path(__file__).with_name("known_sources.py")
JOB = """
import kafkalog, pathlib, sys
assert pathlib.Path(kafkalog.__file__).is_relative_to(sys.prefix), kafkalog.__file__
assert not any("Cython" in name or "setuptools" in name for name in sys.modules)
with kafkalog.open("wheel-0", "a") as log:
    log.append([b"%d" % n for n in range(1000)])
with kafkalog.open("wheel-0") as log:
    print(log.end_offset, [record.value for record in log.records(998)])
"""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean | environment, check=False,
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def c_sources() -> dict[str, str]:
    """Return ci/setup.sh's cached C sources for unchanged modules, so that Cython need not run twice."""
    kept = Path(sys.prefix, "cython")
    return {"CYTHON_CACHE_DIR": str(kept)} if kept.is_dir() else {}


@pytest.mark.slow
@in_a_checkout
def test_the_sdist_builds_here_and_what_it_builds_works_anywhere(sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "/kafkalog/" in name and name.endswith((".so", ".c"))]
    compiler = tmp_path / "cc"  # ci/setup.sh has just built the tree: what is the same need not be compiled twice
    own = os.environ.get("CC") or sysconfig.get_config_var("CC")
    compiler.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {KNOWN_SOURCES} {SOURCES} "{own}" "$@"\n')
    compiler.chmod(0o755)
    (tmp_path / "build.cfg").write_text(f"[build_ext]\nparallel = {os.cpu_count()}\n")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "-q", "--disable-pip-version-check"]
    run(
        sys.executable, "-m", "pip", "wheel", *options, "-w", tmp_path / "wheel", sdist,
        cwd=tmp_path, DIST_EXTRA_CONFIG=str(tmp_path / "build.cfg"), CC=str(compiler), **c_sources(),
    )  # fmt: skip
    (wheel,) = (tmp_path / "wheel").glob("*.whl")
    run(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    python = tmp_path / "env/bin/python"
    run(python, "-m", "pip", "install", *options, wheel, cwd=tmp_path)
    # what kafkalog depends on is taken from here, after the environment's own packages
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    Path(site, "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (tmp_path / "elsewhere").mkdir()
    said = run(python, "-c", JOB, cwd=tmp_path / "elsewhere")
    assert said == "1000 [b'998', b'999']\n"
    output = run(tmp_path / "env/bin/kafkalog", "--version", cwd=tmp_path / "elsewhere")
    assert wheel.name.split("-")[1] in output
