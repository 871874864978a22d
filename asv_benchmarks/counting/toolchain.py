"""The toolchain that counts depend on besides the sources: counts of two days compare if it is the same."""

import importlib.metadata
import os
import platform
import subprocess
import sysconfig

PACKAGES = ("numpy", "pyarrow", "cramjam", "zstandard", "isal", "deflate", "Cython")


def toolchain() -> dict[str, str]:
    """Return architecture, compiler, interpreter, C library, valgrind, and the packages whose code hot paths run."""
    found = {
        "architecture": platform.machine(),
        "vectors": "avx2" if _has_avx2() else "",
        "compiler": _first_line(*(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split(), "--version"),
        "python": " ".join(platform.python_build()) + " " + platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "valgrind": _first_line("valgrind", "--version"),
    }
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = ""
    return found


def differences(one: dict[str, str], other: dict[str, str]) -> list[str]:
    """Return the differences, as words for a line of text."""
    return [f"{name} {one.get(name) or 'none'} / {other.get(name) or 'none'}" for name in sorted({*one, *other})
            if one.get(name) != other.get(name)]  # fmt: skip


def _first_line(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0]
    except OSError:
        return ""


def _has_avx2() -> bool:
    try:
        with open("/proc/cpuinfo") as lines:
            return any(line.startswith("flags") and " avx2 " in line for line in lines)
    except OSError:
        return False
