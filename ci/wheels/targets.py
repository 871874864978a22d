"""Targets of wheels: one CPython, one libc, one machine, and each tool's name for them."""

from dataclasses import dataclass

PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15", "3.14t")
LIBCS = ("manylinux", "musllinux")
MACHINES = ("x86_64", "aarch64")
# the oldest glibc that is promised (manylinux2014), and the compiler's target; 2.28 would be the limit
GLIBC = (2, 17)
REQUIRED_PYTHONS = ("3.11", "3.12", "3.13")


@dataclass(frozen=True, slots=True)
class Target:
    """One wheel to make."""

    python: str  # "3.11"; "3.14t" is the free-threaded build of 3.14
    libc: str  # "manylinux" for glibc, "musllinux" for musl
    machine: str

    @property
    def name(self) -> str:
        """The build identifier, as cibuildwheel writes it."""
        return f"{self.interpreter_tag}-{self.libc}_{self.machine}"

    @property
    def required(self) -> bool:
        """True if a release needs it."""
        return self.libc == "manylinux" and self.python in REQUIRED_PYTHONS

    @property
    def interpreter_tag(self) -> str:
        """`cp311`, and `cp314t` for a free-threaded build."""
        return "cp" + self.python.replace(".", "")

    @property
    def python_tag(self) -> str:
        """The first part of a wheel's tag, which knows no threads."""
        return self.interpreter_tag.rstrip("t")

    @property
    def suffix(self) -> str:
        """Suffix of a compiled module's file name (PEP 3149)."""
        libc = "gnu" if self.libc == "manylinux" else "musl"
        return f".cpython-{self.interpreter_tag.removeprefix('cp')}-{self.machine}-linux-{libc}.so"

    @property
    def triple(self) -> str:
        """The compiler's name of the platform, with the oldest glibc it may use."""
        if self.libc == "musllinux":
            return f"{self.machine}-linux-musl"
        return f"{self.machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"

    @property
    def platform(self) -> str:
        """The platform tag (PEP 600, PEP 656) that the finished wheel is given."""
        if self.libc == "musllinux":
            return f"musllinux_1_2_{self.machine}"
        return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.machine}"


def all_targets() -> list[Target]:
    """Return all targets, the required ones first."""
    wanted = [Target(python, libc, machine) for libc in LIBCS for python in PYTHONS for machine in MACHINES]
    return sorted(wanted, key=lambda target: not target.required)


def chosen(patterns: list[str]) -> list[Target]:
    """Return the targets with one of `patterns` in their name, all without patterns; ValueError if one matches none."""
    targets = all_targets()
    for pattern in patterns:
        if not any(pattern in target.name for target in targets):
            names = " ".join(target.name for target in targets)
            raise ValueError(f"no wheel is called {pattern!r}; there are: {names}")
    return [target for target in targets if not patterns or any(pattern in target.name for pattern in patterns)]
