"""The list of compiled modules and their directives; everything else is in pyproject.toml."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = (
    "values", "state", "plan", "buffers", "crc", "murmur", "varint", "scan", "decode", "record", "encode", "ingest",
    "assign", "index", "pick", "mapping", "render", "text", "template", "listing", "xxhash", "spare",
    "store", "unpack", "arena", "legacy", "repack", "walk", "check", "residency", "agree", "txns", "admit", "rewrite",
    "arrow_memory", "columns", "column_builder", "arrow", "producer", "staged", "producers",
    "trace", "recovery", "counter", "stamp",
    "arrow_input", "arrow_rows", "arrow_encoder", "offset_map", "map_filler",
    "cleaned_txns", "last_records", "retention", "retain",
)  # fmt: skip
USES_CRC = (
    "crc", "scan", "pick", "plan", "encode", "ingest", "assign", "render", "template", "legacy", "repack",
    "walk", "check", "agree", "txns", "admit", "rewrite", "unpack",
    "recovery", "producer", "staged", "producers", "trace", "stamp",
    "arrow_encoder", "cleaned_txns", "last_records", "retention", "retain",
)  # fmt: skip
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
    return [
        Extension(
            f"kafkalog._core.{name}",
            [f"kafkalog/_core/{name}.pyx"],
            include_dirs=["kafkalog/_core"],
            depends=["kafkalog/_core/kcrc.h"] if name in USES_CRC else [],
            extra_compile_args=[*flags, "-Wno-unused-function"],
        )
        for name in MODULES
    ]


def compiled(modules: list[Extension]) -> list[Extension]:
    """The extensions with their C sources made; those of a debug build apart, since Cython goes by dates alone."""
    sources = "build/cython-debug" if DEBUG else "build/cython"
    return cythonize(modules, compiler_directives=DIRECTIVES, build_dir=sources)


if __name__ == "__main__":
    setup(ext_modules=compiled(extensions()))
