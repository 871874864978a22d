"""The last table: which wheels were made, which were not and why."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from .targets import Target


@dataclass(slots=True)
class Row:
    """The result for one target."""

    target: Target
    wheel: Path | None = None
    size: int = 0
    sha256: str = ""
    newest_glibc: str = ""
    headers: str = ""
    seconds: float = 0.0
    tests: str = ""  # what came of the tests against it; empty where none were asked for
    reason: str = ""  # why it could not be made; empty for one that was
    faults: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """True if the wheel was built and has no fault."""
        return self.wheel is not None and not self.faults

    @property
    def tolerable(self) -> bool:
        """Good; or not made where that is no failure, as what could not be made was not required."""
        return self.good or (self.wheel is None and not self.target.required)


def sha256_of(path: Path) -> str:
    """Return the digest of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def table(rows: list[Row]) -> str:
    """Return the rows as lines: built wheels with size, digest, headers and time, then the others with the reason."""
    lines = [f"made: {sum(row.good for row in rows)} of {len(rows)}"]
    for row in (row for row in rows if row.wheel is not None):
        state = "ok" if row.good else f"{len(row.faults)} FAULTS"
        lines.append(
            f"  {row.target.name:26} {state:9} {row.size / 1e6:5.2f} MB  glibc {row.newest_glibc:5}"
            f" {row.seconds:5.0f} s  sha256 {row.sha256}  headers {row.headers}"
        )
        lines += [f"    tests: {row.tests}"] if row.tests else []
        lines += [f"    {fault}" for fault in row.faults]
    for row in (row for row in rows if row.wheel is None):
        lines.append(f"  {row.target.name:26} {'MISSING' if row.target.required else 'not made'}: {row.reason}")
    return "\n".join(lines)
