"""The tree of growing columns: values come out as put, failed rows leave no trace, and memory is released."""

import gc
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.values.builder import Builder

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

Node = tuple[Any, ...]
PAGE = os.sysconf("SC_PAGE_SIZE")
OK, LIMIT = 0, 2


@st.composite
def trees(draw: Any, depth: int = 3) -> tuple[Node, Any]:
    """A tree, and a strategy of (what is put, what comes out)."""
    kinds = ["i", "l", "g", "b", "u", "z", "w:3", "n", "words"] + (["+l", "+s", "+m"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    null = st.just((None, None))
    if kind == "+l":
        inner, values = draw(trees(depth=depth - 1))
        some = st.lists(values, max_size=4).map(lambda vs: ([v[0] for v in vs], [v[1] for v in vs]))
        return ("x", kind, True, (inner,), ()), null | some
    if kind == "+m":
        inner, values = draw(trees(depth=depth - 1))
        pairs = st.lists(st.tuples(st.text(max_size=3), values), max_size=3)
        some = pairs.map(lambda ps: ([(k.encode(), v[0]) for k, v in ps], [(k, v[1]) for k, v in ps]))
        entries = ("entries", "+s", False, (("key", "u", False, (), ()), inner), ())
        return ("x", kind, True, (entries,), ()), null | some
    if kind == "+s":
        children = draw(st.lists(trees(depth=depth - 1), max_size=3))
        named = tuple((f"f{i}", *tree[1:]) for i, (tree, _) in enumerate(children))
        some = st.tuples(*(values for _, values in children)).map(
            lambda vs: ([v[0] for v in vs], {f"f{i}": v[1] for i, v in enumerate(vs)})
        )
        return ("x", kind, True, named, ()), null | some
    if kind == "words":
        some = st.integers(0, 1).map(lambda n: (struct.pack("<i", n), ["no", "yes"][n]))
        return ("x", "i", True, (), ("no", "yes")), null | some
    leaves: dict[str, Any] = {
        "i": st.integers(-9, 9).map(lambda v: (struct.pack("<i", v), v)),
        "l": st.integers(-9, 9).map(lambda v: (struct.pack("<q", v), v)),
        "g": st.floats(-9, 9).map(lambda v: (struct.pack("<d", v), v)),
        "b": st.booleans().map(lambda v: (v, v)),
        "u": st.text(max_size=9).map(lambda v: (v.encode(), v)),
        "z": st.binary(max_size=9).map(lambda v: (v, v)),
        "w:3": st.binary(min_size=3, max_size=3).map(lambda v: (v, v)),
        "n": null,
    }
    return ("x", kind, True, (), ()), null | leaves[kind]


@given(st.data())
def test_rows_come_out_as_they_were_put_and_failed_ones_are_null(data: st.DataObject) -> None:
    tree, some = data.draw(trees())
    rows = data.draw(st.lists(st.tuples(some, st.booleans()), max_size=200))
    builder = Builder(tree)
    for number, ((value, _), good) in enumerate(rows):
        assert builder.put(value) == OK
        if good:
            builder.done()
        else:
            assert builder.fail(f"row {number}")
    texts = builder.errors()
    made = pa.array(builder.values())
    made.validate(full=True)
    assert made.to_pylist() == [out if good else None for (_, out), good in rows]
    wanted = [None if good else f"row {n}" for n, (_, good) in enumerate(rows)]
    assert (texts is None) == all(good for _, good in rows)
    assert texts is None or pa.array(texts).to_pylist() == wanted


@given(st.data())
def test_a_row_that_fails_in_its_middle_leaves_nothing(data: st.DataObject) -> None:
    inner, some = data.draw(trees(depth=2))
    tree = ("x", "+s", True, (("a", "i", True, (), ()), ("b", *inner[1:])), ())
    builder = Builder(tree)
    rows = data.draw(st.lists(st.tuples(some, st.sampled_from(["whole", "first", "second"])), max_size=50))
    for (value, _), end in rows:
        if end == "whole":
            assert builder.put([b"1234", value]) == OK
            builder.done()
            continue
        assert builder.put(b"1234", 1) == OK  # the first field alone, as by a decoder that stops behind it
        if end == "second":
            assert builder.put(value, 2) == OK
        assert builder.fail("cut")
    made = pa.array(builder.values())
    made.validate(full=True)
    number = struct.unpack("<i", b"1234")[0]
    assert made.to_pylist() == [{"a": number, "b": out} if end == "whole" else None for (_, out), end in rows]


def test_the_limit_counts_every_column() -> None:
    tree = ("x", "+s", True, (("a", "u", True, (), ()), ("b", "l", True, (), ())), ())
    builder = Builder(tree, 1 << 16)
    rows = 0
    while (status := builder.put([b"x" * 100, bytes(8)])) == OK:
        builder.done()
        rows += 1
    assert status == LIMIT and builder.nbytes <= 1 << 16 and 100 < rows < 1000
    assert not builder.fail("too large", LIMIT), "the rows before it are what fills it"
    assert builder.stopped == LIMIT and builder.rows == rows
    made = pa.array(builder.values())
    made.validate(full=True)
    assert len(made) == rows


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def test_children_outlive_their_parents_and_nothing_is_left_behind() -> None:
    tree = ("x", "+l", True, (("item", "u", True, (), ()),), ())
    words = ("x", "i", True, (), ("x" * 10_000,))

    def once() -> Any:
        builder = Builder(tree)
        for _ in range(100):
            assert builder.put([b"x" * 1000] * 10) == OK
            builder.done()
            assert builder.put([b"y"] * 99) == OK
            assert builder.fail("no")
        builder.errors()
        Builder(words).values()
        unused = builder.values()
        assert unused.__arrow_c_schema__() is not None
        return pa.array(unused).flatten().slice(3, 2)

    for _ in range(20):
        kept = once()
    assert kept.to_pylist() == ["x" * 1000] * 2
    gc.collect()
    before = resident()
    for _ in range(200):
        once()
    gc.collect()
    assert resident() - before < 40 << 20  # one round takes more than a megabyte


def test_hidden_nodes_are_in_no_column_and_take_no_memory() -> None:
    item = ("item", "+s", True, (("text", "u", True, (), ()), ("b", "b", True, (), ())), ())
    hidden = ("h", "-+l", True, (item,), ())
    builder = Builder(("", "+s", True, (("a", "u", True, (), ()), hidden), ()), 1 << 12)
    assert builder.put(b"a" * 100, 1) == 0
    before = builder.nbytes
    for _ in range(1000):
        for number, value in ((4, b"t" * 1000), (5, True)):
            assert builder.put(value, number) == 0
    assert builder.put(b"\xff", 4) == 0, "a put of bytes: decoders check text"
    assert builder.nbytes == before
    builder.fail("bad")
    assert pa.array(builder.values()).to_pylist() == [None]
    assert pa.array(Builder(("", "+s", True, (("a", "u", True, (), ()), hidden), ())).values()).type.num_fields == 1


def test_hidden_nodes_stand_behind_the_columns_of_a_struct() -> None:
    hidden, shown = ("h", "-i", True, (), ()), ("a", "i", True, (), ())
    for wrong in (("", "+s", True, (hidden, shown), ()), ("", "+l", True, (hidden,), ())):
        with pytest.raises(ValueError, match="hidden"):
            Builder(wrong)
