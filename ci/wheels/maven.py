"""Python's headers from Maven Central, where the JavaCPP presets have whole builds of CPython for each machine."""

import shutil
import zipfile
from pathlib import Path

from .command import Failed, run
from .targets import Target

ARTIFACT = "org.bytedeco:cpython"
VERSIONS = {"3.11": "3.11.3-1.5.9", "3.12": "3.12.1-1.5.10", "3.13": "3.13.5-1.5.12", "3.14": "3.14.3-1.5.13"}
CLASSIFIERS = {"x86_64": "linux-x86_64", "aarch64": "linux-arm64"}
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


def include_dirs(target: Target, cache: Path, log: Path) -> tuple[Path, ...]:
    """Return the folders with the headers of the target's Python, as the presets were built for its machine."""
    version, classifier = VERSIONS.get(target.python), CLASSIFIERS[target.machine]
    if version is None:
        raise Failed(f"{ARTIFACT} has no {target.python}")
    root = cache / "headers" / f"cpython-{version}-{classifier}"
    if not root.is_dir():
        extract_headers(download(version, classifier, cache, log), root)
    include = root / "org" / "bytedeco" / "cpython" / classifier / "include"
    return (include / f"python{target.python}", include)


def download(version: str, classifier: str, cache: Path, log: Path) -> Path:
    """Fetch one artifact by Maven, without what it depends on."""
    if shutil.which("mvn") is None:
        raise Failed("there is no mvn here; Debian's package is called maven")
    folder = cache / "maven"
    coordinates = f"{ARTIFACT}:{version}:jar:{classifier}"
    run(["mvn", "-q", "-B", PLUGIN, f"-Dartifact={coordinates}", f"-DoutputDirectory={folder}"], log)
    return folder / f"{ARTIFACT.split(':')[1]}-{version}-{classifier}.jar"


def extract_headers(jar: Path, root: Path) -> None:
    """Take only the headers out of the archive, into `root`, which is there whole or not at all."""
    unfinished = root.with_name(f"{root.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(unfinished, members=[name for name in archive.namelist() if "/include/python" in name])
    unfinished.rename(root)
