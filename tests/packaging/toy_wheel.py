"""A small sound wheel with one compiled module, made in a moment, and the tree it would be built from."""

import base64
import hashlib
import subprocess
import sysconfig
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from ci.wheels.targets import Target

TARGET = Target("3.11", "manylinux", "x86_64")
VERSION = "1.0"
DIST_INFO = f"toy-{VERSION}.dist-info"
MODULE = f"kafkalog/_core/fast{TARGET.suffix}"
PYPROJECT = """
[project]
name = "toy"
license = "Apache-2.0"
requires-python = ">=3.11"
classifiers = ["Typing :: Typed"]
dependencies = ["numpy>=1.26", "isal>=1.6; platform_machine == 'x86_64' or platform_machine == 'aarch64'"]

[project.scripts]
toy = "kafkalog.cli.main:main"
"""
METADATA = f"""Metadata-Version: 2.4
Name: toy
Version: {VERSION}
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.11
Classifier: Typing :: Typed
Requires-Dist: numpy>=1.26
Requires-Dist: isal>=1.6; platform_machine == "x86_64" or platform_machine == "aarch64"
Requires-Dist: pyspark>=4; extra == "spark"
Provides-Extra: spark
"""
WHEEL = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-{TARGET.platform}\n"
PACKAGE = {
    "kafkalog/__init__.py": b"",
    "kafkalog/py.typed": b"",
    "kafkalog/_core/fast.pyi": b"def f() -> int: ...\n",
    "pyspark_kafkalog/__init__.py": b"",
}
SOURCE = "void *PyInit_fast(void) { return 0; }"
FLAGS = ("-s", "-Wl,-z,relro,-z,now,-z,noexecstack")


@cache
def compiled(source: str = SOURCE, *flags: str) -> bytes:
    """A shared object of `source`, as the machine's compiler makes it with `flags` (the sound ones for none)."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    with TemporaryDirectory() as folder:
        file = Path(folder, "fast.so")
        options = [*(flags or FLAGS), "-shared", "-fPIC", "-O1", "-o", str(file), "-xc", "-"]
        subprocess.run([compiler, *options], input=source, text=True, check=True)
        return file.read_bytes()


@dataclass(slots=True)
class ToyWheel:
    """The files of a wheel before they are packed, to be spoilt one by one."""

    files: dict[str, bytes]
    name: str = f"toy-{VERSION}-cp311-cp311-{TARGET.platform}.whl"
    record: str | None = None  # instead of the right one

    @classmethod
    def sound(cls, module: bytes | None = None) -> "ToyWheel":
        """All files as they should be; `module` is the compiled one, a sound one for None."""
        said = {
            "METADATA": METADATA, "WHEEL": WHEEL, "top_level.txt": "kafkalog\npyspark_kafkalog\n",
            "entry_points.txt": "[console_scripts]\ntoy = kafkalog.cli.main:main\n",
            "licenses/LICENSE": "as you like\n",
        }  # fmt: skip
        return cls({
            **PACKAGE, MODULE: compiled() if module is None else module,
            **{f"{DIST_INFO}/{name}": text.encode() for name, text in said.items()},
        })  # fmt: skip

    def right_record(self) -> str:
        """RECORD for the files as they are."""
        lines = [
            f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"
            for name, data in self.files.items()
        ]
        return "\n".join([*lines, f"{DIST_INFO}/RECORD,,", ""])

    def pack(self, folder: Path) -> Path:
        """Write the wheel into `folder`."""
        record = self.right_record() if self.record is None else self.record
        with zipfile.ZipFile(folder / self.name, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in {**self.files, f"{DIST_INFO}/RECORD": record.encode()}.items():
                archive.writestr(name, data)
        return folder / self.name


def tree(folder: Path) -> Path:
    """The unpacked sdist that the sound wheel is of."""
    for name, data in {**PACKAGE, "kafkalog/_core/fast.pyx": b"", "pyproject.toml": PYPROJECT.encode()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder
