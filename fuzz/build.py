"""Builds what the fuzzer runs, in the working directory: `python fuzz/build.py`, with CC and CFLAGS of a clang.

Besides the compiled modules these are the Python modules that read untrusted bytes: Cython makes C of them too, so that
libFuzzer sees their branches. `ci/fuzz.sh` calls this in a scratch copy.
"""

import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

sys.path.insert(0, str(Path.cwd()))
from fuzz import TARGETS
from setup import compiled, extensions

READERS = (
    "records/compression.py", "records/lz4_frame.py", "records/xerial.py", "records/zstd_frame.py",
    "records/gzip_member.py", "records/tables.py", "records/batch.py", "records/memory.py", "records/validate.py",
    "records/convert.py", "records/refusals.py", "records/control.py", "records/schema.py", "records/message.py",
    "records/internal.py", "storage/index/aborted_txns.py", "storage/producer_snapshot.py",
    "storage/partition_metadata.py", "storage/leader_epoch.py", "util/checkpoint.py", "tools/dump/record_readers.py",
    "tools/dump/control_text.py", "tools/dump/remote_log_text.py", "tools/dump/batch_records.py", "keys/format.py",
    "values/avro_schema.py", "values/avro_columns.py", "values/avro_program.py", "values/avro_default.py",
    "values/json_schema.py", "values/json_types.py", "values/plain.py", "values/internal.py", "where/bounds.py",
    "where/fields.py", "where/grammar.py", "where/literals.py",
)  # fmt: skip


def readers() -> list[Extension]:
    """An extension for each Python module that is compiled for its branches alone; the targets are, to be quick."""
    files = [f"kafkalog/{path}" for path in READERS] + [f"fuzz/{name}.py" for name in (*TARGETS, "rows")]
    quick = ["-O2", "-DNDEBUG", "-fno-sanitize=address,undefined"]  # nothing in them can go astray in memory
    return [
        Extension(path.removesuffix(".py").replace("/", "."), [path], extra_compile_args=quick) for path in files
    ]


if __name__ == "__main__":
    plain = {"language_level": 3, "annotation_typing": False, "binding": True}
    modules = compiled(extensions())
    modules += cythonize(readers(), compiler_directives=plain, build_dir="build/cython")
    setup(name="kafkalog-fuzz", ext_modules=modules, packages=[])
