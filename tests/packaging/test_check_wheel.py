"""Checks of a finished wheel: a sound one passes, and each planted fault is reported by its name."""

import platform
import random
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("elftools", reason="pyelftools reads the compiled modules; the extra `package` has it")

from ci.wheels import content
from ci.wheels.check import Checked, check_wheel
from tests.packaging.toy_wheel import DIST_INFO, FLAGS, MODULE, SOURCE, TARGET, VERSION, ToyWheel, compiled, tree

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the toy module is compiled for x86_64 by this machine's compiler"
)
NOW = "-Wl,-z,relro,-z,now"


def check(wheel: ToyWheel, tmp_path: Path, target=TARGET) -> Checked:
    (tmp_path / "out").mkdir()
    return check_wheel(wheel.pack(tmp_path / "out"), target, tree(tmp_path / "tree"), [Path("/builds/of/somebody")])


def test_a_sound_wheel_has_no_fault(tmp_path):
    checked = check(ToyWheel.sound(), tmp_path)
    assert checked.faults == []
    assert 0 < checked.size < content.MOST_BYTES and checked.newest_glibc == "-"


MODULES = {  # a module with one fault, and what is said of it
    "debug": ((SOURCE, "-g", NOW, "-Wl,-z,noexecstack"), r"holds debug information \(\.debug_info\)"),
    "symbols": ((SOURCE, NOW, "-Wl,-z,noexecstack"), r"holds debug information \(\.symtab\)"),
    "stack": ((SOURCE, "-s", NOW, "-Wl,-z,execstack"), "asks for an executable stack"),
    "relro": ((SOURCE, "-s", "-Wl,-z,norelro,-z,now"), r"no full RELRO"),
    "lazy": ((SOURCE, "-s", "-Wl,-z,relro,-z,lazy"), r"no full RELRO"),
    "path": ((SOURCE, *FLAGS, "-Wl,-rpath,/opt/lib"), "library search path '/opt/lib'"),
    "library": ((SOURCE, *FLAGS, "-Wl,--no-as-needed", "-lgcc_s"), r"needs the library libgcc_s\.so\.1"),
    "foreign": (
        ("void other(void); void *PyInit_fast(void) { other(); return 0; }",), "calls other of an unnamed library",
    ),
    "glibc": (
        ("int fstat(int, void *); void *PyInit_fast(void) { fstat(0, 0); return 0; }",),
        r"calls fstat of GLIBC_2\.33, newer than 2\.17",
    ),
    "exports": (("int helper; void *PyInit_fast(void) { return 0; }",), "gives the symbol helper to others"),
    "entry": (("void *PyInit_other(void) { return 0; }",), "has no PyInit_fast"),
    "build path": (
        ('const char *PyInit_fast(void) { return "/builds/of/somebody/fast.c"; }',),
        "names the build folder /builds/of/somebody",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", MODULES)
def test_a_fault_of_a_compiled_module_is_told(fault, tmp_path):
    made, said = MODULES[fault]
    faults = check(ToyWheel.sound(compiled(*made)), tmp_path).faults
    assert any(re.search(said, text) and MODULE in text for text in faults), faults


def test_a_module_of_another_machine_is_told(tmp_path):
    data = bytearray(compiled())
    struct.pack_into("<H", data, 18, 183)  # e_machine: EM_AARCH64
    assert check(ToyWheel.sound(bytes(data)), tmp_path).faults == [f"{MODULE} is made for EM_AARCH64, not EM_X86_64"]


def test_what_is_no_module_is_told(tmp_path):
    faults = check(ToyWheel.sound(b"#!/bin/sh\n"), tmp_path).faults
    assert faults == [f"{MODULE}: no ELF file: Magic number does not match"]


def without(name: str) -> Callable[[ToyWheel], None]:
    return lambda wheel: wheel.files.pop(name)


def holding(name: str, data: bytes = b"") -> Callable[[ToyWheel], None]:
    return lambda wheel: wheel.files.update({name: data})


def saying(name: str, old: str, new: str) -> Callable[[ToyWheel], None]:
    path = f"{DIST_INFO}/{name}"
    return lambda wheel: wheel.files.update({path: wheel.files[path].replace(old.encode(), new.encode())})


def recording(change: Callable[[str], str]) -> Callable[[ToyWheel], None]:
    return lambda wheel: setattr(wheel, "record", change(wheel.right_record()))


WHEELS = {  # what is done to a sound wheel, and what is said of it
    "no module": (without(MODULE), f"lacks {MODULE}"),
    "no stub": (without("kafkalog/_core/fast.pyi"), f"has no stub for {MODULE}"),
    "no marker": (without("kafkalog/py.typed"), "lacks kafkalog/py.typed"),
    "no package": (without("pyspark_kafkalog/__init__.py"), "lacks pyspark_kafkalog/__init__.py"),
    "no licence": (without(f"{DIST_INFO}/licenses/LICENSE"), f"lacks {DIST_INFO}/licenses/LICENSE"),
    "source": (holding("kafkalog/_core/fast.pyx"), "holds kafkalog/_core/fast.pyx, which is not expected"),
    "generated": (holding("kafkalog/_core/fast.c"), "holds kafkalog/_core/fast.c, which is not expected"),
    "tests": (holding("tests/test_it.py"), "holds tests/test_it.py, which is not expected"),
    "other suffix": (
        holding("kafkalog/_core/fast.cpython-312-x86_64-linux-gnu.so", compiled(SOURCE)),
        "fast.cpython-312-x86_64-linux-gnu.so, which is not expected",
    ),
    "too large": (holding("kafkalog/ballast.bin", random.Random(1).randbytes(6_000_000)), "bytes, 6000000 or more"),
    "build path": (
        holding("kafkalog/__init__.py", b"# /builds/of/somebody/x\n"), "kafkalog/__init__.py names the build folder",
    ),
    "version": (saying("METADATA", f"Version: {VERSION}", "Version: 2"), f"METADATA says Version: 2, not {VERSION}"),
    "python": (saying("METADATA", ">=3.11", ">=3.8"), "METADATA says Requires-Python: >=3.8, not >=3.11"),
    "licence": (saying("METADATA", "Apache-2.0", "MIT"), "METADATA says License-Expression: MIT, not Apache-2.0"),
    "bad licence": (saying("METADATA", "Apache-2.0", "Freeware"), "METADATA is not valid"),
    "classifier": (saying("METADATA", "Classifier: Typing :: Typed\n", ""), "METADATA says Classifier: "),
    "dependency": (saying("METADATA", "Requires-Dist: numpy>=1.26\n", ""), "METADATA says Requires-Dist: "),
    "tag": (saying("WHEEL", "cp311-manylinux", "cp312-manylinux"), "WHEEL has the tags"),
    "pure": (saying("WHEEL", "Purelib: false", "Purelib: true"), "WHEEL does not say Root-Is-Purelib: false"),
    "command": (saying("entry_points.txt", "toy = ", "toys = "), "entry_points.txt says"),
    "hash": (recording(lambda record: record.replace("sha256=", "sha256=A", 1)), "RECORD has another hash or size of"),
    "unrecorded": (recording(lambda record: record.partition("\n")[2]), "RECORD lacks kafkalog/__init__.py"),
    "recorded": (recording(lambda record: f"gone.py,sha256=,0\n{record}"), "RECORD has gone.py, which is not there"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WHEELS)
def test_a_fault_of_the_content_is_told(fault, tmp_path):
    spoil, said = WHEELS[fault]
    wheel = ToyWheel.sound()
    spoil(wheel)
    faults = check(wheel, tmp_path).faults
    assert any(said in text for text in faults), faults


def test_a_bill_of_materials_beside_the_metadata_is_no_fault(tmp_path):
    wheel = ToyWheel.sound()
    wheel.files[f"{DIST_INFO}/sboms/auditwheel.cdx.json"] = b"{}"
    assert check(wheel, tmp_path).faults == []


@pytest.mark.parametrize(("change", "said"), [
    ({"python": "3.12"}, "has the tags ['cp311-cp311-manylinux_2_17_x86_64'], not cp312-cp312-manylinux_2_17_x86_64"),
    ({"libc": "musllinux"}, "not cp311-cp311-musllinux_1_2_x86_64"),
    ({"machine": "aarch64"}, "is made for EM_X86_64, not EM_AARCH64"),
])  # fmt: skip
def test_a_wheel_of_another_target_is_told(change, said, tmp_path):
    faults = check(ToyWheel.sound(), tmp_path, replace(TARGET, **change)).faults
    assert any(said in text for text in faults), faults
