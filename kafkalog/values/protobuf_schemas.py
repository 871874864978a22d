"""Descriptions of Protobuf messages: from a descriptor set, `.proto` text, a class, or a registry.

All of it needs the package protobuf (extra `schemas`). `.proto` text is compiled by protoc: that of the package
grpcio-tools, or the program.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, Final

from kafkalog.errors import IllegalArgument, MissingPackage
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.packages import needed

PROTOC_TIMEOUT_S: Final = 60
PROTOC_OUTPUT_BYTES: Final = 1 << 16
MOST_IMPORTS: Final = 100
"""Files that import each other in a row."""
WELL_KNOWN: Final = ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct",
                     "timestamp", "type", "wrappers")  # fmt: skip
_META: Final = """
name: "confluent/meta.proto" package: "confluent" syntax: "proto3" dependency: "google/protobuf/descriptor.proto"
message_type {
  name: "Meta"
  field {name: "doc" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING}
  field {name: "params" number: 2 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".confluent.Meta.ParamsEntry"}
  field {name: "tags" number: 3 label: LABEL_REPEATED type: TYPE_STRING}
  field {name: "rules" number: 4 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".confluent.Rule"}
  nested_type {
    name: "ParamsEntry" options {map_entry: true}
    field {name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING}
    field {name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING}
  }
}
message_type {
  name: "Rule"
  field {name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING}
  field {name: "doc" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING}
  field {name: "expr" number: 3 label: LABEL_OPTIONAL type: TYPE_STRING}
  field {name: "sql" number: 4 label: LABEL_OPTIONAL type: TYPE_STRING}
}
""" + "".join(
    f'extension {{name: "{name}_meta" extendee: ".google.protobuf.{options}Options" number: 1088 '
    'label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".confluent.Meta"}\n'
    for name, options in (
        ("file", "File"), ("message", "Message"), ("field", "Field"), ("enum", "Enum"), ("enum_value", "EnumValue"),
    )
)  # fmt: skip
_DECIMAL: Final = """
name: "confluent/type/decimal.proto" package: "confluent.type" syntax: "proto3"
message_type {
  name: "Decimal"
  field {name: "value" number: 1 label: LABEL_OPTIONAL type: TYPE_BYTES}
  field {name: "precision" number: 2 label: LABEL_OPTIONAL type: TYPE_UINT32}
  field {name: "scale" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32}
}
"""
CONFLUENT: Final = {"confluent/meta.proto": _META, "confluent/type/decimal.proto": _DECIMAL}
"""Files that Confluent's registry has built in and its serializers send no reference for."""


def import_protobuf(name: str) -> Any:
    """Return a module of `google.protobuf`; MissingPackage without the package."""
    what = "the decoder protobuf needs a package that is not installed: {}"
    return needed(f"google.protobuf.{name}", what, "schemas")


def descriptor_of(given: Any) -> Any | None:
    """Return the descriptor of a generated message class, of a message, or of itself; None for anything else."""
    found = getattr(given, "DESCRIPTOR", given)
    return found if hasattr(found, "fields_by_number") else None


class DescriptorFiles:
    """The files of one schema: the last one is the schema itself, the others are what it imports."""

    def __init__(self, files: Iterable[Any], place: str = "") -> None:
        self.place = place
        pool = import_protobuf("descriptor_pool").DescriptorPool()
        given = {file.name: file for file in files}
        if not given:
            raise IllegalArgument("the descriptor set has no file", path=place or None)
        self._given = given
        self._added: set[str] = set()
        try:
            for name in given:
                self._add(pool, name, ())
            self.file = pool.FindFileByName(list(given)[-1])
            self._all = [pool.FindFileByName(name) for name in given]
        except (TypeError, KeyError, ValueError) as error:
            raise IllegalArgument(f"the descriptor set contradicts itself: {error}", path=place or None) from None

    def _add(self, pool: Any, name: str, importers: tuple[str, ...]) -> None:
        if name in self._added:
            return
        if name in importers:
            raise ValueError(f"{name} imports itself")
        if len(importers) >= MOST_IMPORTS:
            raise ValueError(f"more than {MOST_IMPORTS} files import each other in a row")
        file = self._given.get(name) or _well_known(name)
        if file is None:
            raise KeyError(f"{name} is imported and not in it (protoc --include_imports puts it there)")
        for other in file.dependency:
            self._add(pool, other, (*importers, name))
        pool.Add(file)
        self._added.add(name)

    def message(self, name: str | None) -> Any:
        """Return the descriptor of a message by its name, with or without the package; of the only one for None."""
        known = {found.full_name: found for file in self._all for found in _messages(file)}
        if name is None:
            own = list(self.file.message_types_by_name.values())
            if len(own) == 1:
                return own[0]
            words = f"the schema has {len(own)} messages" if own else "the schema has no message"
            raise IllegalArgument(words, path=self.place or None, hint=f"give message=, one of {', '.join(known)}")
        found = known.get(name) or known.get(f"{self.file.package}.{name}")
        if found is None:
            near = get_close_matches(name, [*known, *(one.rpartition(".")[2] for one in known)], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the messages are {', '.join(known)}"
            raise IllegalArgument(f"the schema has no message {name!r}", path=self.place or None, hint=hint)
        return found

    def message_at(self, indexes: tuple[int, ...]) -> Any:
        """Return the descriptor of the message at indexes: in the file, then in each message around it."""
        types = list(self.file.message_types_by_name.values())
        found = None
        for index in indexes:
            if not 0 <= index < len(types):
                raise IllegalArgument(f"the schema has no message at {list(indexes)}", path=self.place or None)
            found = types[index]
            types = list(found.nested_types)
        return found


def indexes_of(descriptor: Any) -> tuple[int, ...]:
    """Return the indexes of a message's type, as a registry's header has them."""
    found: list[int] = []
    while descriptor.containing_type is not None:
        found.append([one.full_name for one in descriptor.containing_type.nested_types].index(descriptor.full_name))
        descriptor = descriptor.containing_type
    found.append(list(descriptor.file.message_types_by_name).index(descriptor.name))
    return tuple(reversed(found))


def descriptor_set(file: Any) -> bytes:
    """Return the FileDescriptorSet of a file and of all that it imports, which come before it."""
    pb = import_protobuf("descriptor_pb2")
    found = pb.FileDescriptorSet()
    known: set[str] = set()

    def add(one: Any) -> None:
        if one.name in known:
            return
        known.add(one.name)
        for other in one.dependencies:
            add(other)
        one.CopyToProto(found.file.add())

    add(file)
    made: bytes = found.SerializeToString()
    return made


def descriptor_files(content: bytes, place: str = "", imports: Mapping[str, bytes] | None = None) -> DescriptorFiles:
    """Return the files of a schema: a FileDescriptorSet, base64 of a FileDescriptorProto, or `.proto` text.

    `imports` are the contents of the files that it imports, by name. MissingPackage if text is given and there is no
    protoc; IllegalArgument for anything else.
    """
    pb = import_protobuf("descriptor_pb2")
    files = _parsed_set(pb, content)
    if files is None:
        own = _parsed_file(pb, content)
        others = [_parsed_file(pb, other, name) for name, other in (imports or {}).items()]
        known = [file for file in (*others, own) if file is not None]
        files = known if len(known) == len(others) + 1 else None
    if files is None:
        files = list(pb.FileDescriptorSet.FromString(_compile(content, place, imports or {})).file)
    return DescriptorFiles(files, place)


def _parsed_set(pb: Any, content: bytes) -> list[Any] | None:
    """Return the files of a FileDescriptorSet, None for anything else."""
    try:
        files = list(pb.FileDescriptorSet.FromString(content).file)
    except Exception:  # the package's DecodeError, of one of its implementations
        return None
    return files if files and all(file.name for file in files) else None


def _parsed_file(pb: Any, content: bytes, name: str = "") -> Any | None:
    """Return a FileDescriptorProto in base64, as a registry has it in its format `serialized`; None for others."""
    try:
        file = pb.FileDescriptorProto.FromString(base64.b64decode(content.strip(), validate=True))
    except Exception:  # no base64, or the package's DecodeError
        return None
    if not file.name and not file.message_type:
        return None
    file.name = name or file.name or "schema.proto"
    return file


def _well_known(name: str) -> Any | None:
    """Return a file that a schema may import without giving it: of Google's well-known types, or of Confluent's."""
    if name in CONFLUENT:
        empty = import_protobuf("descriptor_pb2").FileDescriptorProto()
        return import_protobuf("text_format").Parse(CONFLUENT[name], empty)
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if stem not in WELL_KNOWN or not name.startswith("google/protobuf/"):
        return None
    file = import_protobuf("descriptor_pb2").FileDescriptorProto()
    import_protobuf(f"{stem}_pb2").DESCRIPTOR.CopyToProto(file)
    return file


def _write_known(folder: str) -> str:
    """Write the files of Confluent's as a FileDescriptorSet, for protoc; return its path."""
    pb = import_protobuf("descriptor_pb2")
    path = os.path.join(folder, "known.desc")
    with open(path, "wb") as file:
        file.write(pb.FileDescriptorSet(file=[_well_known(name) for name in CONFLUENT]).SerializeToString())
    return path


def _messages(file: Any) -> list[Any]:
    waiting, found = list(file.message_types_by_name.values()), []
    while waiting:
        one = waiting.pop(0)
        if not one.GetOptions().map_entry:
            found.append(one)
        waiting += one.nested_types
    return found


def _protoc() -> list[str]:
    """Return the command of protoc; MissingPackage if there is none."""
    if find_spec("grpc_tools") is not None:
        return [sys.executable, "-m", "grpc_tools.protoc"]
    program = shutil.which("protoc")
    if program is None:
        raise MissingPackage(
            "a schema is .proto text, and there is no protoc to compile it",
            hint="pip install grpcio-tools, or compile it elsewhere: protoc --include_imports -o x.desc x.proto",
        )
    return [program]


def _run(command: list[str]) -> tuple[int, bytes]:
    """Return the status of a command and the beginning of its errors. It is killed if it says more, or takes too long.

    So it is if the caller is interrupted. TimeoutError for what takes too long, OSError for a command that does not
    start.
    """
    is_late = False
    process: subprocess.Popen[bytes] | None = None

    def stop() -> None:
        nonlocal is_late
        is_late = True
        if process is not None:
            process.kill()

    timer = threading.Timer(PROTOC_TIMEOUT_S, stop)
    timer.daemon = True
    try:
        with deferred_interrupts():  # an interrupt between fork and assignment would leave the process running
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        timer.start()
        assert process.stderr is not None
        with process.stderr as stderr:
            said = stderr.read(PROTOC_OUTPUT_BYTES)
        if len(said) == PROTOC_OUTPUT_BYTES:
            process.kill()
        status = process.wait()
    except BaseException:  # such as KeyboardInterrupt: its result is no longer wanted
        if process is not None:
            process.kill()
            process.wait()
        raise
    finally:
        timer.cancel()
    if is_late:
        raise TimeoutError(f"it took longer than {PROTOC_TIMEOUT_S} s")
    return status, said


def _compile(content: bytes, place: str, imports: Mapping[str, bytes]) -> bytes:
    """Return the FileDescriptorSet of `.proto` text; IllegalArgument with protoc's words if it has errors."""
    command = _protoc()
    with tempfile.TemporaryDirectory(prefix="kafkalog-proto-") as folder:
        for name, text in {**imports, "schema_to_read.proto": content}.items():
            path = os.path.normpath(os.path.join(folder, name))
            if not path.startswith(folder + os.sep):
                raise IllegalArgument(f"the schema imports {name!r}, which is no relative path", path=place or None)
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(text)
            except (OSError, ValueError) as error:  # too long, no file's name, or that of a directory of another one
                raise IllegalArgument(
                    f"the schema imports {name!r:.200}, which cannot be written for protoc: {error}",
                    path=place or None,
                ) from None  # fmt: skip
        made = os.path.join(folder, "made.desc")
        around = [f"-I{os.path.dirname(os.path.abspath(place))}"] if place and os.path.isfile(place) else []
        options = ["--include_imports", f"--descriptor_set_out={made}", f"-I{folder}", *around, "schema_to_read.proto"]
        if b"confluent/" in content or any(b"confluent/" in text for text in imports.values()):
            options.insert(0, f"--descriptor_set_in={_write_known(folder)}")
        try:
            status, output = _run([*command, *options])
        except OSError as error:
            raise IllegalArgument(f"protoc did not compile the schema: {error}", path=place or None) from None
        if status or not os.path.exists(made):
            lines = output.decode("utf-8", "replace").replace(folder + os.sep, "").splitlines()
            said = [line for line in lines if ".proto:" in line and "] " not in line] or lines
            words = "; ".join(said) or f"protoc ended with status {status}"
            raise IllegalArgument(f"the schema is no Protobuf: {words}", path=place or None)
        with open(made, "rb") as file:
            return file.read()
