"""The list of compiled modules and their directives, and where they can be; everything else is in pyproject.toml."""

import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SUPPORTED = "CPython 3.11 or newer on a 64-bit, little-endian Linux (macOS from source, untested)"

MODULES = {  # by the folder of `kafkalog/_core` they lie in
    "bytes": (
        "crc", "murmur", "varint", "buffers", "mapping", "xxhash", "spare", "store", "residency", "counter", "clock",
        "references",
    ),
    "batch": (
        "scan", "decode", "record", "encode", "pick", "unpack", "arena", "legacy", "repack", "walk", "agree", "rewrite",
        "stamp", "ready_batch", "sections", "copied",
    ),
    "log": (
        "values", "state", "roll", "plan", "assign", "index", "segment_check", "txns", "admit", "producer_state",
        "producer_checks", "staged", "trace", "recovery", "log_lock", "log_fields", "index_append", "append_engine",
    ),
    "clean": (
        "offset_map", "live_offsets", "map_filler", "cleaned_txns", "last_records", "clean_rules", "rewrite_kept",
        "redact_rows",
    ),
    "arrow": ("memory", "columns", "column_builder", "capsules", "input", "rows", "encoder"),
    "text": ("ingest", "render", "text_buffer", "template", "listing"),
    "messages": ("outline", "reader", "writer"),
    "values": (
        "builder", "value_column", "plain", "avro_program", "avro", "items", "decimal_text", "json_rows",
        "protobuf_rows",
    ),
    "keys": (
        "key_walk", "key_builder", "key_map", "key_finder", "key_pages", "key_index", "key_reader", "given_keys",
        "key_picker", "key_records", "key_columns",
    ),
}  # fmt: skip
USES_CRC = {
    "arrow.encoder", "batch.agree", "batch.encode", "batch.legacy", "batch.pick", "batch.ready_batch",
    "batch.repack", "batch.rewrite", "batch.scan", "batch.sections", "batch.stamp", "batch.unpack", "batch.walk",
    "bytes.crc", "clean.clean_rules", "clean.cleaned_txns", "clean.last_records", "clean.redact_rows",
    "clean.rewrite_kept", "keys.key_pages", "log.admit", "log.append_engine", "log.assign", "log.plan",
    "log.producer_checks", "log.producer_state", "log.recovery", "log.segment_check", "log.staged", "log.trace",
    "log.txns", "messages.writer", "text.ingest", "text.render", "text.template",
}  # fmt: skip
CORE = "kafkalog._core"
SHARED = f"{CORE}.shared"  # what Cython would else put into each module: a sixth of a wheel
HEADERS = dict.fromkeys(USES_CRC, ("bytes/kcrc.h", "bytes/kcpu.h")) | dict.fromkeys(
    (
        "clean.offset_map", "keys.given_keys", "keys.key_builder", "keys.key_finder", "keys.key_map",
        "keys.key_reader", "keys.key_walk",
    ),
    ("bytes/kcpu.h",),
)
for _name in ("log.append_engine", "log.index_append", "log.log_fields"):
    HEADERS[_name] = (*HEADERS.get(_name, ()), "log/kslot.h")
for _name in ("batch.sections", "bytes.spare", "keys.key_index", "keys.key_pages", "keys.key_reader"):
    HEADERS[_name] = (*HEADERS.get(_name, ()), "bytes/kmutex.h")
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

# As Cython's directive of this name, which would leave out `shared`; docs/threads.md says what protects shared state
NEEDS_NO_GIL = ("CYTHON_FREETHREADING_COMPATIBLE", "1")


def extensions() -> list[Extension]:
    """One extension for each compiled module, named after its file."""
    flags = ["-O1", "-g"] if DEBUG else ["-O3", "-g0", "-DNDEBUG"]
    names = {SHARED: "kafkalog/_core/shared.c"}  # which Cython makes, in the folder of its sources
    for folder, modules in MODULES.items():
        names |= {f"{CORE}.{folder}.{name}": f"kafkalog/_core/{folder}/{name}.pyx" for name in modules}
    return [
        Extension(
            name,
            [source],
            include_dirs=["kafkalog/_core/bytes", "kafkalog/_core/log"],
            depends=[f"kafkalog/_core/{header}" for header in HEADERS.get(name.removeprefix(f"{CORE}."), ())],
            define_macros=[NEEDS_NO_GIL],
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


def compiled(modules: list[Extension], processes: int = 0) -> list[Extension]:
    """The extensions with their C sources made; those of a debug build apart, since Cython goes by dates alone."""
    from Cython.Build import cythonize

    sources = "build/cython-debug" if DEBUG else "build/cython"
    return cythonize(
        modules,
        compiler_directives=DIRECTIVES,
        emit_linenums=DEBUG,  # debuggers and traces show the lines of the Cython sources
        build_dir=sources,
        nthreads=processes,
        cache="CYTHON_CACHE_DIR" in os.environ,  # by the content of all that a module is made from
        shared_utility_qualified_name=SHARED,
        shared_utility_features_disabled=["MemoryView"],  # the largest part; none of ours has one
    )


class BuildCompiled(build_ext):
    """Makes the C sources only where they are compiled: metadata and sdist need no Cython."""

    def build_extensions(self) -> None:
        for extension, made in zip(self.extensions, compiled(self.extensions, int(self.parallel or 0)), strict=True):
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
