"""The rules for Protobuf, held against the parser: no field of a compatible writer is lost or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("google.protobuf", reason="the extra `schemas` is not installed")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from kafkalog.server.registry.protobuf_rules import protobuf_incompatibilities

SAMPLES = {
    "int32": 1, "int64": 1, "uint32": 1, "uint64": 1, "bool": True, "sint32": 1, "sint64": 1, "fixed32": 1,
    "sfixed32": 1, "fixed64": 1, "sfixed64": 1, "float": 1.5, "double": 1.5, "string": "a", "bytes": b"a",
}  # fmt: skip
Field = tuple[int, str, bool]


def file_of(text: str) -> Any:
    return text_format.Parse(f'name: "f.proto" syntax: "proto2" {text}', descriptor_pb2.FileDescriptorProto())


def field(number: int, kind: str, label: str = "OPTIONAL", more: str = "") -> str:
    return f'field {{name: "f{number}" number: {number} label: LABEL_{label} type: TYPE_{kind.upper()} {more}}}'


def message(*fields: str, name: str = "M", more: str = "") -> str:
    return f'message_type {{name: "{name}" {" ".join(fields)} {more}}}'


def class_of(file: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("M"))


def made(fields: list[Field]) -> Any:
    return file_of(message(*(field(n, kind, "REPEATED" if many else "OPTIONAL") for n, kind, many in fields)))


FIELDS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(sorted(SAMPLES)), st.booleans()), unique_by=lambda one: one[0]
)


@settings(max_examples=150, deadline=None)
@given(FIELDS, FIELDS)
def test_a_compatible_reader_finds_all_fields_that_it_knows(ours: list[Field], theirs: list[Field]) -> None:
    reader, writer = made(ours), made(theirs)
    if protobuf_incompatibilities(reader, writer):
        return
    value = class_of(writer)()
    for number, kind, many in theirs:
        if many:
            getattr(value, f"f{number}").append(SAMPLES[kind])
        else:
            setattr(value, f"f{number}", SAMPLES[kind])
    found = class_of(reader).FromString(value.SerializeToString())
    known = {number: many for number, _, many in ours}
    for number, _, _ in theirs:
        if number in known:
            one = getattr(found, f"f{number}")
            assert len(one) == 1 if known[number] else found.HasField(f"f{number}")


@pytest.mark.parametrize(
    ("reader", "writer", "reason"),
    [
        (message(field(1, "int32")), message(field(1, "int64")), ""),
        (message(field(1, "int32")), message(field(1, "sint32")), "FIELD_SCALAR_KIND_CHANGED at #/M/1"),
        (message(), message(field(1, "int32")), ""),
        (message(field(1, "int32", "REQUIRED")), message(), "REQUIRED_FIELD_ADDED at #/M/1"),
        (message(), message(field(1, "int32", "REQUIRED")), "REQUIRED_FIELD_REMOVED at #/M/1"),
        (message(name="N"), message(), "MESSAGE_REMOVED at #/M"),
        (f"{message()} {message(name='N')}", message(), ""),
        (f'package: "a" {message()}', f'package: "b" {message()}', "PACKAGE_CHANGED"),
        (message(field(1, "int32", "REPEATED")), message(field(1, "int32")), "FIELD_NUMERIC_LABEL_CHANGED at #/M/1"),
        (message(field(1, "string", "REPEATED")), message(field(1, "string")), ""),
        (message(field(1, "message", more='type_name: ".M"')), message(field(1, "int32")), "FIELD_KIND_CHANGED"),
        (message(field(1, "message", more='type_name: ".M"')), message(field(1, "message", more='type_name: ".N"')),
         "FIELD_NAMED_TYPE_CHANGED at #/M/1"),
        (message(field(1, "int32", more="oneof_index: 0"), field(2, "int32", more="oneof_index: 0"),
                 more='oneof_decl {name: "o"}'), message(field(1, "int32"), field(2, "int32")),
         "MULTIPLE_FIELDS_MOVED_TO_ONEOF at #/M/o"),
        (message(field(1, "int32", more="oneof_index: 0"), more='oneof_decl {name: "o"}'),
         message(field(1, "int32", more="oneof_index: 0"), field(2, "int32", more="oneof_index: 0"),
                 more='oneof_decl {name: "o"}'), "ONEOF_FIELD_REMOVED at #/M/2"),
    ],
)  # fmt: skip
def test_reasons(reader: str, writer: str, reason: str) -> None:
    found = protobuf_incompatibilities(file_of(reader), file_of(writer))
    assert [text.partition(":")[0] for text in found] == [reason.partition(":")[0]] if ":" in reason else (
        any(text.startswith(reason) for text in found) if reason else not found
    )
