"""Fields that have another name in the table are found by their numbers, also inside renamed messages and lists."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from kafkalog.lake.failures import TableMismatch
from kafkalog.lake.renames import numbers_of, plan_renames, with_names

KEPT = {"value.a": 1, "value.a.x": 1, "value.a.y": 2, "value.z": 3, "value.z.x": 1}
NOW = {"value.b.w": 1, "value.b.y": 2, "value.b.new": 9, "value.b": 1, "value.z": 3, "value.z.x": 1, "value.more": 4}
NAMES = {"value.b": "value.a", "value.b.w": "value.a.x", "value.b.y": "value.a.y", "value.b.new": "value.a.new"}


def test_fields_of_a_renamed_message_are_those_of_the_one_in_the_table() -> None:
    assert plan_renames("t", KEPT, NOW) == NAMES


def test_all_fields_with_the_name_of_another_one_are_named() -> None:
    words = "value.a is field 2, and the table has field 1 by this name; value.b is field 1, and .* has field 2"
    with pytest.raises(TableMismatch, match=words) as failure:
        plan_renames("t", {"value.a": 1, "value.b": 2, "value.c": 3}, {"value.a": 2, "value.b": 1, "value.c": 3})
    assert failure.value.columns == ("value.a", "value.b")


def test_a_type_with_the_names_of_the_table() -> None:
    inner = pa.struct([pa.field("w", pa.int32(), nullable=False), pa.field("y", pa.string())])
    kind = pa.struct([pa.field("b", pa.list_(inner)), pa.field("more", pa.int64())])
    renamed = with_names(kind, "value", NAMES)
    inner = pa.struct([pa.field("x", pa.int32(), nullable=False), pa.field("y", pa.string())])
    assert renamed == pa.struct([pa.field("a", pa.list_(inner)), pa.field("more", pa.int64())])
    assert with_names(kind, "key", NAMES) == kind


def test_numbers_of_decoders_that_have_them() -> None:
    decoders = {"key": SimpleNamespace(field_numbers={"id": 1}), "value": SimpleNamespace(field_numbers={"id": 7}),
                "headers.x": object()}  # fmt: skip
    assert numbers_of(decoders) == {"key.id": 1, "value.id": 7}
