"""The list of compiled modules and their directives, and where they can be; everything else is in pyproject.toml."""

import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SUPPORTED = "CPython 3.11 or newer on a 64-bit, little-endian Linux (macOS from source, untested)"

MODULES = (
    "values", "state", "plan", "buffers", "crc", "murmur", "varint", "scan", "decode", "record", "encode", "ingest",
    "assign", "index", "pick", "mapping", "render", "text", "template", "listing", "xxhash", "spare",
    "store", "unpack", "arena", "legacy", "repack", "walk", "check", "residency", "agree", "txns", "admit", "rewrite",
    "arrow_memory", "columns", "column_builder", "arrow", "producer", "staged", "producers",
    "trace", "recovery", "counter", "stamp", "clock", "log_lock", "log_fields", "index_append", "append_engine",
    "arrow_input", "arrow_rows", "arrow_encoder", "offset_map", "live_offsets", "map_filler",
    "cleaned_txns", "last_records", "retention", "retain", "message_reader", "message_writer",
)  # fmt: skip
USES_CRC = (
    "crc", "scan", "pick", "plan", "encode", "ingest", "assign", "render", "template", "legacy", "repack",
    "walk", "check", "agree", "txns", "admit", "rewrite", "unpack",
    "recovery", "producer", "staged", "producers", "trace", "stamp", "append_engine",
    "arrow_encoder", "cleaned_txns", "last_records", "retention", "retain", "message_writer",
)  # fmt: skip
SHARED = "kafkalog._core.shared"  # what Cython would else put into each module: a sixth of a wheel
HEADERS = dict.fromkeys(USES_CRC, ("kcrc.h", "kcpu.h")) | {"offset_map": ("kcpu.h",)}
HEADERS |= {name: HEADERS.get(name, ()) + ("kslot.h",) for name in ("append_engine", "index_append", "log_fields")}
DEBUG = os.environ.get("KAFKALOG_DEBUG") == "1"
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": DEBUG,
    "wraparound": False,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "embedsignature": True,
    "auto_pickle": False,           # what may travel says so itself; the rest holds pointers
    "linetrace": DEBUG,
}


def extensions() -> list[Extension]:
    """One extension for each compiled module, named after its file."""
    flags = ["-O1", "-g"] if DEBUG else ["-O3", "-g0", "-DNDEBUG"]
    names = {SHARED: "kafkalog/_core/shared.c"}  # which Cython makes, in the folder of its sources
    names |= {f"kafkalog._core.{name}": f"kafkalog/_core/{name}.pyx" for name in MODULES}
    return [
        Extension(
            name,
            [source],
            include_dirs=["kafkalog/_core"],
            depends=[f"kafkalog/_core/{header}" for header in HEADERS.get(name.rpartition(".")[2], ())],
            extra_compile_args=[*flags, "-Wno-unused-function"],
        )
        for name, source in names.items()
    ]


def refusal(implementation: str, version: tuple, system: str, word_bits: int, byteorder: str) -> str | None:
    """Why kafkalog cannot be built for such a Python, in one line; None where it can."""
    if implementation != "cpython":
        found = f"{implementation}, whose C API it was not tested with"
    elif version < (3, 11):
        found = "Python " + ".".join(map(str, version[:2]))
    elif system in ("win32", "cygwin", "emscripten", "wasi"):
        found = f"{system}, which has no POSIX file calls and locks"
    elif word_bits != 64:
        found = f"a {word_bits}-bit Python"
    elif byteorder != "little":
        found = f"a {byteorder}-endian machine"
    else:
        return None
    return f"kafkalog needs {SUPPORTED}. This is {found}."


def compiled(modules: list[Extension]) -> list[Extension]:
    """The extensions with their C sources made; those of a debug build apart, since Cython goes by dates alone."""
    from Cython.Build import cythonize

    sources = "build/cython-debug" if DEBUG else "build/cython"
    return cythonize(
        modules,
        compiler_directives=DIRECTIVES,
        emit_linenums=DEBUG,  # debuggers and traces show the lines of the Cython sources
        build_dir=sources,
        shared_utility_qualified_name=SHARED,
        shared_utility_features_disabled=["MemoryView"],  # the largest part; none of ours has one
    )


class BuildCompiled(build_ext):
    """Makes the C sources only where they are compiled: metadata and sdist need no Cython."""

    def build_extensions(self) -> None:
        for extension, made in zip(self.extensions, compiled(self.extensions), strict=True):
            assert extension.name == made.name
            extension.sources = made.sources
        super().build_extensions()


if __name__ == "__main__":
    reason = refusal(
        sys.implementation.name, sys.version_info, sys.platform, 64 if sys.maxsize > 2**32 else 32, sys.byteorder
    )
    if reason is not None:
        sys.exit(reason)
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildCompiled})
