"""Python's headers from Debian's packages: downloaded and taken apart under a folder, never installed.

apt is given a state, a cache and a list of suites of its own, so that packages of other suites and of the other machine
can be fetched while the system's own apt knows nothing of them. The site is the one that the system's apt uses.
"""

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from .command import Failed, run
from .source import extract
from .targets import Target

SUITES = ("bookworm", "trixie", "sid")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SITE_VARIABLE = "KAFKALOG_DEBIAN"


def include_dirs(target: Target, cache: Path, log: Path) -> tuple[Path, ...]:
    """Return the folders with the headers of the target's Python, as Debian packs them for its machine."""
    package = f"libpython{target.python}-dev"
    root = cache / "headers" / f"{package}_{MACHINES[target.machine]}"
    if not root.is_dir():
        extract_headers(download(package, target, cache, log), root)
    include = root / "usr" / "include"
    return (include / f"python{target.python}", include)  # pyconfig.h of the first includes one below the second


def download(package: str, target: Target, cache: Path, log: Path) -> Path:
    """Fetch one package for the target's machine; raises `Failed` where no suite has it."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise Failed(f"there is no {program} here")
    config = private_apt(cache / "apt", log)
    folder = cache / "apt" / "packages" / target.name
    folder.mkdir(parents=True, exist_ok=True)
    wanted = f"{package}:{MACHINES[target.machine]}"
    try:
        run(["apt-get", "download", wanted], log, cwd=folder, env={"APT_CONFIG": str(config)})
    except Failed as failed:
        if "Unable to locate package" in str(failed):
            raise Failed(f"none of {', '.join(SUITES)} has {package}") from failed
        raise
    (file,) = folder.glob(f"{package}_*.deb")
    return file


def private_apt(folder: Path, log: Path) -> Path:
    """Write a configuration of apt that keeps everything under `folder`, and fetch its lists once; return its file."""
    config = folder / "apt.conf"
    if config.exists():
        return config
    for below in ("state/lists/partial", "cache/archives/partial", "etc"):
        (folder / below).mkdir(parents=True, exist_ok=True)
    (folder / "state/status").touch()
    site, options = debian_site(log), f"arch={','.join(MACHINES.values())} signed-by={KEYRING}"
    (folder / "etc/sources.list").write_text(
        "".join(f"deb [{options}] {site} {suite} main\n" for suite in SUITES), encoding="utf-8"
    )
    unfinished = folder / "unfinished.conf"
    unfinished.write_text(apt_settings(folder), encoding="utf-8")
    run(["apt-get", "--quiet", "update"], log, env={"APT_CONFIG": str(unfinished)})
    return unfinished.rename(config)


def apt_settings(folder: Path) -> str:
    """Return the settings that keep apt under `folder`, as text."""
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "state/status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "etc/sources.list",
        "Dir::Etc::sourceparts": folder / "etc/none.d",
        "Dir::Etc::preferences": folder / "etc/none",
        "Dir::Etc::preferencesparts": folder / "etc/none.d",
        "APT::Sandbox::User": "root" if os.geteuid() == 0 else "",
        "APT::Architectures": "",
        "Acquire::Languages": "none",
        "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
    }
    (folder / "etc/none.d").mkdir(exist_ok=True)
    machines = " ".join(f'"{name}";' for name in MACHINES.values())
    lines = [f'{name} "{value}";' for name, value in settings.items() if value != ""]
    return "\n".join([*lines, f"APT::Architectures {{ {machines} }};", ""])


def debian_site(log: Path) -> str:
    """Return the address that this system's apt has Debian's main archive from, or the one in KAFKALOG_DEBIAN."""
    if SITE_VARIABLE in os.environ:
        return os.environ[SITE_VARIABLE]
    if not KEYRING.exists():
        raise Failed(f"no Debian here (no {KEYRING}); {SITE_VARIABLE} may name a mirror where apt and the keys are")
    lines = run(["apt-get", "indextargets", "--format", "$(LABEL)\t$(REPO_URI)"], log).splitlines()
    sites = [line.split("\t")[1] for line in lines if line.startswith("Debian\t")]
    if not sites:
        raise Failed(f"apt knows no Debian archive: run apt-get update, or name a mirror in {SITE_VARIABLE}")
    return sites[0]


def extract_headers(package: Path, root: Path) -> None:
    """Take only the headers out of a package, into `root`, which is there whole or not at all."""
    unfinished = root.with_name(f"{root.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    packed = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        headers = [member for member in archive if member.name.startswith("./usr/include/")]
        extract(archive, unfinished, headers)
    unfinished.rename(root)
