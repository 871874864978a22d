"""Descriptions of Protobuf messages: which message of which file is found, and what makes a schema no sound one."""

import base64
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, text_format

from kafkalog.errors import IllegalArgument, MissingPackage
from kafkalog.values import protobuf_schemas
from kafkalog.values.protobuf_schemas import (
    DescriptorFiles,
    descriptor_files,
    descriptor_of,
    descriptor_set,
    indexes_of,
)

NESTED = """name: "n.proto" package: "p" syntax: "proto3"
message_type { name: "A" nested_type { name: "B" nested_type { name: "C" } } nested_type { name: "D" }
  nested_type { name: "MEntry" options { map_entry: true }
    field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "value" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL } }
  field { name: "m" number: 4 type: TYPE_MESSAGE type_name: ".p.A.MEntry" label: LABEL_REPEATED } }
message_type { name: "E" nested_type { name: "D" } }"""


def file(text: str) -> Any:
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())


def encoded(text: str) -> bytes:
    """A file as a registry has it."""
    return base64.b64encode(file(text).SerializeToString())


def importing(*names: str, name: str = "x.proto") -> str:
    return f'name: "{name}" ' + "".join(f'dependency: "{one}" ' for one in names) + 'message_type { name: "X" }'


def test_messages_by_name_and_by_indexes() -> None:
    files = DescriptorFiles([file(NESTED)], "place")
    places = {"p.A": (0,), "p.A.B": (0, 0), "p.A.B.C": (0, 0, 0), "A.D": (0, 1), "E": (1,), "p.E.D": (1, 0)}
    for name, indexes in places.items():
        found = files.message(name)
        assert found.full_name == "p." + name.removeprefix("p.") and indexes_of(found) == indexes
        assert files.message_at(indexes) is found and descriptor_of(found) is found
    for indexes in ((2,), (-1,), (0, 3), (0, -1), (1, 0, 0)):
        with pytest.raises(IllegalArgument, match="no message at") as error:
            files.message_at(indexes)
        assert str(list(indexes)) in error.value.message and error.value.path == "place"
    assert descriptor_of(5) is None


def test_names_that_no_message_has() -> None:
    files = DescriptorFiles([file(NESTED)], "place")
    for name, hint in (("Ee", "did you mean 'E'?"), ("p.A.DD", "did you mean 'p.A.D'?"), ("zzzzzz", "p.A, p.E, p.A.B")):
        with pytest.raises(IllegalArgument, match=f"no message '{name}'") as error:
            files.message(name)
        assert hint in str(error.value.hint) and error.value.path == "place"
    assert "Entry" not in str(error.value.hint), "a map's entries are no messages of their own"
    with pytest.raises(IllegalArgument, match="the schema has 2 messages") as error:
        files.message(None)
    assert error.value.path == "place"
    with pytest.raises(IllegalArgument, match="the schema has no message"):
        DescriptorFiles([file('name: "x"')]).message(None)
    last = DescriptorFiles([file(NESTED), file(importing("n.proto"))])
    assert last.message(None).name == "X" and last.message("p.A.B").name == "B", "those of imports too"


def test_files_that_many_others_import_are_looked_at_once() -> None:
    """Each of two files imports both of the level below: there are 2 ** 50 ways to the last one."""
    made = []
    for level in range(50):
        below = [f"{kind}{level - 1}.proto" for kind in "ab" if level]
        made += [importing(*below, name=f"{kind}{level}.proto").replace('"X"', f'"{kind}{level}"') for kind in "ab"]
    files = DescriptorFiles(map(file, made[::-1]))
    assert files.message("b49").name == "b49" and files.file.name == "a0.proto"
    found = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set(files.message("b3").file))
    assert sorted(one.name for one in found.file) == [
        "a0.proto", "a1.proto", "a2.proto", "b0.proto", "b1.proto", "b2.proto", "b3.proto",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ([], "the descriptor set has no file"), ([importing("x.proto")], "x.proto imports itself"),
        ([importing("y.proto"), importing("x.proto", name="y.proto")], "x.proto imports itself"),
        ([importing("other.proto")], "other.proto is imported and not in it"),
        ([importing("timestamp.proto")], "is imported and not in it"),
        ([importing("google/protobuf/else.proto")], "is imported and not in it"),
        (['name: "x" message_type { name: "A" } message_type { name: "A" }'], "contradicts itself"),
    ],
)  # fmt: skip
def test_sets_that_contradict_themselves(texts: list[str], words: str) -> None:
    with pytest.raises(IllegalArgument, match=words) as error:
        DescriptorFiles(map(file, texts), "place")
    assert error.value.path == "place"


def test_files_that_a_schema_may_import_without_giving_them() -> None:
    names = ["google/protobuf/timestamp.proto", "confluent/meta.proto", "confluent/type/decimal.proto"]
    found = descriptor_files(encoded(importing(*names))).message(None)
    made = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set(found.file))
    assert [one.name for one in made.file] == [
        names[0], "google/protobuf/descriptor.proto", *names[1:], "x.proto",
    ]  # fmt: skip
    again = descriptor_files(descriptor_set(found.file))
    assert again.message("X").full_name == "X" and again.file.name == "x.proto"


def test_imports_have_the_names_by_which_they_are_imported() -> None:
    files = descriptor_files(encoded('dependency: "a/y.proto" message_type { name: "X" }'), "place",
                             {"a/y.proto": encoded(NESTED)})  # fmt: skip
    assert (files.file.name, files.place, files.message("p.E").file.name) == ("schema.proto", "place", "a/y.proto")


def compiler(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(protobuf_schemas, "_protoc", lambda: [sys.executable, "-c", program])


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import sys; sys.exit(3)", "protoc ended with status 3"), ("", "protoc ended with status 0"),
        ("import sys; sys.exit('w\\nx.proto:1: bad\\n[libprotobuf] x.proto:2: log')", "no Protobuf: x.proto:1: bad$"),
        ("import sys; sys.exit('one\\ntwo')", "no Protobuf: one; two"),
        ("import time; time.sleep(600)", "did not compile the schema: it took longer than 0.5 s"),
    ],
)
def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, program: str, words: str) -> None:
    monkeypatch.setattr(protobuf_schemas, "PROTOC_TIMEOUT_S", 0.5 if "sleep" in program else 60)
    compiler(monkeypatch, program)
    with pytest.raises(IllegalArgument) as error:
        descriptor_files(b"message A {}")
    assert words.removesuffix("$") in error.value.message
    assert not words.endswith("$") or error.value.message.endswith(words[:-1])


def test_what_is_neither_a_set_nor_base64_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(monkeypatch, "import sys; sys.exit('x.proto:1: no text')")
    nameless = descriptor_pb2.FileDescriptorSet(file=[file(NESTED), file('package: "q"')]).SerializeToString()
    for content in (nameless, encoded(NESTED)[:8] + b"!" + encoded(NESTED)[8:], base64.b64encode(b""), b"message A {}"):
        with pytest.raises(IllegalArgument, match="no text"):
            descriptor_files(content)
    with pytest.raises(IllegalArgument, match="no text"):
        descriptor_files(encoded(NESTED), imports={"x.proto": b"message A {}"})


def test_confluents_files_are_given_to_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    read = "open(sys.argv[1].partition('=')[2], 'rb').read()"
    compiler(monkeypatch, f"import sys; data = {read}; sys.exit(str(b'Meta' in data and b'Decimal' in data))")
    with pytest.raises(IllegalArgument, match="no Protobuf: True"):
        descriptor_files(b'import "confluent/meta.proto";')


def test_places_that_the_compiler_looks_into(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its own folder first, then that of the schema's file; Confluent's files only if one of them is imported."""
    compiler(monkeypatch, "import sys; sys.exit(' '.join(sys.argv[1:]))")
    schema = tmp_path / "d" / "x.proto"
    schema.parent.mkdir()
    schema.touch()
    for content, imports, is_known in (
        (b"message A {}", {}, False), (b'import "confluent/meta.proto";', {}, True),
        (b"", {"a.proto": b'import "confluent/meta.proto";'}, True),
    ):  # fmt: skip
        with pytest.raises(IllegalArgument) as error:
            descriptor_files(content, str(schema), imports)
        said = error.value.message
        assert ("--descriptor_set_in=" in said) == is_known
        assert said.endswith(f" -I{schema.parent} schema_to_read.proto")
    with pytest.raises(IllegalArgument) as error:
        descriptor_files(b"message A {}", "registry")
    assert error.value.message.count("-I") == 1
    for name in ("../x.proto", "/x.proto", ".."):
        with pytest.raises(IllegalArgument, match="which is no relative path"):
            descriptor_files(b"message A {}", imports={name: b""})


def test_the_compiler_is_that_of_the_package_or_a_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(protobuf_schemas, "find_spec", lambda name: name == "grpc_tools")
    assert protobuf_schemas._protoc() == [sys.executable, "-m", "grpc_tools.protoc"]
    monkeypatch.setattr(protobuf_schemas, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="grpcio-tools"):
        descriptor_files(b"message A {}")
    (tmp_path / "protoc").touch(0o755)
    assert protobuf_schemas._protoc() == [str(tmp_path / "protoc")]
