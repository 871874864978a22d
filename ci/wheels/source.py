"""The sdist of a commit, with the same bytes on every machine at any time, and the tree that wheels are built in."""

import gzip
import io
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from .command import Failed, run

# the C sources of all modules, generated once for all wheels; in a separate tree, as a builder of the sdist has it
CYTHONIZE = "import runpy; made = runpy.run_path('setup.py'); made['compiled'](made['extensions']())"


@dataclass(frozen=True, slots=True)
class Sdist:
    """A finished sdist, and the second its commit was made in (`SOURCE_DATE_EPOCH`)."""

    path: Path
    epoch_s: int

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that keep clocks and hash orders out of the tools' output."""
        return {"SOURCE_DATE_EPOCH": str(self.epoch_s), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def checked_out(root: Path, log: Path) -> str:
    """Return the commit that is checked out at `root`."""
    if not (root / ".git").exists():
        raise Failed(f"{root} is no git checkout: the version and the date of a release come from its commit")
    return run(["git", "-C", root, "rev-parse", "HEAD"], log).strip()


def make_sdist(root: Path, commit: str, work: Path, out: Path, log: Path) -> Sdist:
    """Build the sdist of a commit of the repository at `root` into `out`; changes not committed are not in it."""
    epoch_s = int(run(["git", "-C", root, "log", "-1", "--format=%ct", commit], log).split()[0])
    checkout, built = work / "checkout", work / "sdist"
    run(["git", "clone", "--quiet", "--no-hardlinks", root, checkout], log)
    run(["git", "-C", checkout, "checkout", "--quiet", "--detach", commit], log)
    made = Sdist(out, epoch_s)
    build: list[str | Path] = ["build", "--sdist", "--no-isolation", "--outdir", built, checkout]
    run([sys.executable, "-m", *build], log, env=made.environment)
    (archive,) = built.glob("*.tar.gz")
    plain = out / archive.name
    plain.write_bytes(normalized(archive.read_bytes(), epoch_s))
    return Sdist(plain, epoch_s)


def normalized(archive: bytes, epoch_s: int) -> bytes:
    """Rewrite a `.tar.gz`: members in order, without owners, dated `epoch_s`; of a mode only execution bits stay."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(
        fileobj=packed, mode="w", format=tarfile.PAX_FORMAT
    ) as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            data = old.extractfile(member) if member.isfile() else None
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch_s, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, data)
    return gzip.compress(packed.getvalue(), compresslevel=9, mtime=epoch_s)


def extract(archive: tarfile.TarFile, where: Path, members: list[tarfile.TarInfo]) -> None:
    """Unpack `members` into `where`, out of which none may lead: Python from 3.11.4 on sees to that."""
    safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    archive.extractall(where, members=members, **safe)  # type: ignore[arg-type]


def unpack(sdist: Sdist, where: Path) -> Path:
    """Unpack into `where`, and return the one folder that is in there."""
    with tarfile.open(sdist.path) as archive:
        extract(archive, where, archive.getmembers())
    (tree,) = where.iterdir()
    return tree


def cythonize(tree: Path, sdist: Sdist, log: Path) -> None:
    """Make the C source of every compiled module; it is one for all targets, since Python's version is asked in C."""
    run([sys.executable, "-c", CYTHONIZE], log, cwd=tree, env=sdist.environment)
