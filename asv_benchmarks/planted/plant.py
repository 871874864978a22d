"""A planted slowdown: a line of code in one file of the package that makes one hot path slower."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Plant:
    """`slow` is put before the line `at` of `file` (or in its place), so that `path` takes more instructions.

    `also` are the other hot paths that run that line, by name.
    """

    path: str
    file: str
    at: str
    slow: str
    in_place: bool = False
    also: tuple[str, ...] = ()

    def plant(self, package: Path) -> Path:
        """Change the file in a tree's package; raise ValueError unless the line is there exactly once."""
        file = package / self.file
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        found = [number for number, line in enumerate(lines) if line.strip() == self.at]
        if len(found) != 1:
            raise ValueError(f"{self.file} has the line {self.at!r} {len(found)} times")
        (number,) = found
        indent = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
        slow = [f"{indent}{line}\n" for line in self.slow.splitlines()]
        lines[number : number + self.in_place] = slow
        file.write_text("".join(lines), encoding="utf-8")
        return file
