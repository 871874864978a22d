"""System-specific C compiles for other systems, with zig's copies of their headers; and so does the fallback."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.trees import SOURCES

CORE = SOURCES / "kafkalog" / "_core"
MODULES = ("bytes/crc", "log/index", "bytes/mapping", "clean/offset_map", "bytes/residency")
TARGETS = ("x86_64-linux-musl", "aarch64-linux-gnu.2.28", "aarch64-macos", "x86_64-macos")
FLOCK = """
#include <fcntl.h>
#include <stddef.h>
#define AT(field, where) _Static_assert(offsetof(struct flock, field) == where, #field)
#ifdef __APPLE__
AT(l_start, 0); AT(l_len, 8); AT(l_pid, 16); AT(l_type, 20); AT(l_whence, 22);
_Static_assert(sizeof(struct flock) == 24, "size");
_Static_assert(F_FULLFSYNC == 51, "F_FULLFSYNC");
#else
AT(l_type, 0); AT(l_whence, 2); AT(l_start, 8); AT(l_len, 16); AT(l_pid, 24);
_Static_assert(sizeof(struct flock) == 32, "size");
#endif
"""
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (SOURCES / "setup.py").is_file(), reason="needs the sources")]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The C sources of those modules, and the layout of a record lock that system_calls.py relies on."""
    pytest.importorskip("ziglang", reason="the extra `package` is not installed")
    folder = tmp_path_factory.mktemp("c")
    made = [folder / "flock.c"]
    made[0].write_text(FLOCK)
    for name in MODULES:
        made.append(folder / f"{Path(name).name}.c")
        command = [sys.executable, "-m", "cython", "-3", "-o", str(made[-1]), f"kafkalog/_core/{name}.pyx"]
        subprocess.run(command, cwd=SOURCES, check=True)
    return made


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python's headers with one pyconfig.h: Debian's asks for that of the target, where its own compiler looks."""
    installed, folder = Path(sysconfig.get_path("include")), tmp_path_factory.mktemp("python") / "include"
    shutil.copytree(installed, folder)
    own = installed.parent / str(sysconfig.get_config_var("MULTIARCH")) / installed.name / "pyconfig.h"
    if own.is_file():
        shutil.copyfile(own, folder / "pyconfig.h")
    return folder


@pytest.mark.parametrize("macro", ["NDEBUG", "KAFKALOG_PORTABLE"])
@pytest.mark.parametrize("target", TARGETS)
def test_compiles_for(target: str, macro: str, sources: list[Path], headers: Path, tmp_path: Path) -> None:
    if macro == "KAFKALOG_PORTABLE" and "macos" in target:
        pytest.skip("there it is that form already")
    for source in sources:
        done = subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", "-target", target, "-c", "-O0", "-g0", f"-D{macro}",
             "-fno-sanitize=undefined",  # of a program that runs; it doubles the time
             "-Werror=implicit-function-declaration", f"-I{headers}", f"-I{CORE / 'bytes'}",
             str(source), "-o", str(tmp_path / "made.o")],
            cwd=tmp_path, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{source.name} for {target}: {done.stderr}"
