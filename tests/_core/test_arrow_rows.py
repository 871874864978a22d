"""Arrow structures that others made, sound and not: taken, or refused with the reason, and released once each."""

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.arrow.encoder import ArrowEncoder, Parcel
from kafkalog._core.arrow.input import ArrowSource, BadArrow
from kafkalog._core.arrow.rows import RowPlan, Rows, next_rows
from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from tests.arrow_abi import Node, Release, Streamed, new_capsule

NOW = 1_700_000_000_000
DATA = b"abcdefghij"


def ends(*numbers: int) -> bytes:
    return struct.pack(f"<{len(numbers)}i", *numbers)


def text(name: bytes = b"value", *, kind: bytes = b"z", **fields: Any) -> Node:
    """abc, nothing, defghij."""
    return Node(kind, 3, [None, ends(0, 3, 3, 10), DATA], name=name, **fields)


def numbers(name: bytes, kind: bytes = b"i", values: bytes = ends(0, 0, 0), **fields: Any) -> Node:
    return Node(kind, 3, [None, values], name=name, **fields)


def header_column() -> Node:
    """[(ab, x)], [], [(c, null), (defgh, yz)]."""
    names = Node(b"u", 3, [None, ends(0, 2, 3, 8), b"abcdefgh"], name=b"key")
    values = Node(b"z", 3, [b"\x05", ends(0, 1, 1, 3), b"xyz"], name=b"value", nulls=1)
    items = Node(b"+s", 3, [None], [names, values], name=b"item")
    return Node(b"+l", 3, [None, ends(0, 1, 1, 3)], [items], name=b"headers")


def table(*columns: Node, **fields: Any) -> Node:
    return Node(b"+s", 3, [None], columns, **fields)


def read(data: Any, **names: str | None) -> list[tuple[Any, ...]]:
    """(key, value, headers, timestamp) of each row, as they come out of the batches."""
    source = ArrowSource(data)
    plan = RowPlan(source, names or None)
    encoder = ArrowEncoder(lambda topic: (1, 1 << 20, 0), topic="t")
    while (rows := next_rows(source, plan)) is not None:
        at = 0
        while at < len(rows):
            at = encoder.feed(rows, at, NOW)
    encoder.seal()
    out: list[tuple[Any, ...]] = []
    for parcel in encoder.take():
        found = scan(parcel)
        assert (found.first_invalid, found.stop_position) == (-1, len(parcel))
        out += [(r.key, r.value, r.headers, r.timestamp) for r in decode(parcel, found)]
    return out


def everything(node: Node) -> list[Node]:
    return [node, *(one for child in node.children for one in everything(child))]


def test_what_is_sound_is_taken_and_released() -> None:
    times = numbers(b"timestamp", b"tsu:", struct.pack("<3q", 1000, -1000, 5_999_999))
    node = table(text(), text(b"key", kind=b"u"), header_column(), times)
    assert read(node) == [
        (b"abc", b"abc", (("ab", b"x"),), 1),
        (b"", b"", (), NOW),
        (b"defghij", b"defghij", (("c", None), ("defgh", b"yz")), 5999),
    ]
    assert node.released == ["array", "schema"]
    assert all(not child.released for child in everything(node)[1:]), "a parent lets go of its children itself"


def test_offsets_of_slices_add_up() -> None:
    """Of the column, of the table, and of the struct in a list."""
    column = Node(b"z", 4, [b"\xf7", ends(9, 0, 1, 2, 3, 5, 9), b"ABCDEFGHI"], name=b"value", offset=1, nulls=1)
    # what lies before the first value is not looked at; of the column's four values the table shows the last two
    node = Node(b"+s", 2, [None], [column], offset=2)
    assert [row[1] for row in read(node)] == [None, b"DE"]
    lists = header_column()
    lists.array.offset, lists.array.length = 2, 1
    one = Node(b"+s", 1, [None], [Node(b"z", 1, [None, ends(0, 1), b"v"], name=b"value"), lists])
    assert read(one)[0][2] == (("c", None), ("defgh", b"yz"))
    lists = header_column()
    items = lists.children[0]
    items.array.offset, items.array.length = 1, 2
    lists.array.buffers[1] = None
    short = Node(b"+l", 3, [None, ends(0, 1, 1, 2)], [items], name=b"headers")
    assert [row[2] for row in read(table(text(), short))] == [(("c", None),), (), (("defgh", b"yz"),)]


Change = Callable[[Node], object]


def column(change: Change) -> Change:
    """A change of the value column."""
    return lambda node: change(node.children[0])


def set_array(**fields: Any) -> Change:
    return lambda node: [setattr(node.array, name, value) for name, value in fields.items()]


def set_schema(**fields: Any) -> Change:
    return lambda node: [setattr(node.schema, name, value) for name, value in fields.items()]


def no_pointer(what: str, i: int) -> Change:
    def change(node: Node) -> None:
        if what == "buffers":
            node.array.buffers[i] = None
        elif what == "array":
            node.array_places[i] = None
        else:
            node.schema_places[i] = None

    return change


def as_buffer(i: int, content: bytes) -> Change:
    def change(node: Node) -> None:
        fresh = Node(b"z", 0, [content])
        node.__dict__.setdefault("more", []).append(fresh)
        node.array.buffers[i] = fresh.array.buffers[0]

    return change


def headers(change: Change) -> Change:
    return lambda node: change(node.children[1])


def items(change: Change) -> Change:
    return headers(lambda node: change(node.children[0]))


BAD: list[Change] = [
    # the table
    set_array(length=-1), set_array(length=2**63 - 1), set_array(offset=-1), set_array(offset=2**62),
    set_array(length=4), set_array(offset=1), set_array(null_count=-2), set_array(null_count=1),
    set_array(null_count=4), set_array(n_buffers=0), set_array(n_buffers=2), set_array(n_children=0),
    set_array(n_children=3), set_array(n_children=-1), set_array(buffers=None), set_array(children=None),
    no_pointer("array", 0),
    no_pointer("schema", 0), no_pointer("schema", 1), set_schema(n_children=-1), set_schema(children=None),
    set_schema(format=None), set_schema(format=b""), set_schema(format=b"+"), set_schema(format=b"z"),
    # a column of bytes
    column(set_array(length=2)), column(set_array(length=-3)), column(set_array(offset=-1)),
    column(set_array(length=2**48 + 1)), column(set_array(offset=2**62)),
    column(set_array(null_count=2)), column(set_array(n_buffers=2)), column(set_array(n_buffers=4)),
    column(set_array(n_children=1)), column(set_array(buffers=None)), column(set_array(release=Release())),
    column(no_pointer("buffers", 1)), column(no_pointer("buffers", 2)),
    column(as_buffer(1, ends(0, 3, 2, 10))), column(as_buffer(1, ends(-1, 3, 3, 10))),
    column(as_buffer(1, ends(0, 11, 3, 10))), column(as_buffer(1, ends(0, 3, -(2**31), 10))),
    column(as_buffer(1, ends(0, 3, 3, -1))), column(as_buffer(1, ends(4, 3, 3, 10))),
    column(set_schema(format=None)), column(set_schema(format=b"")), column(set_schema(format=b"v")),
    column(set_schema(format=b"zz")), column(set_schema(format=b"vZ")), column(set_schema(format=b"w:3")),
    column(set_schema(format=b"\xff\xfe")), column(set_schema(n_children=1)), column(set_schema(name=None)),
    lambda node: set_schema(dictionary=type(node.schema_places[0])(node.schema))(node.children[0]),
    lambda node: set_array(dictionary=type(node.array_places[0])(node.array))(node.children[0]),
    # headers
    headers(set_array(n_buffers=1)), headers(set_array(n_children=0)), headers(no_pointer("array", 0)),
    headers(no_pointer("schema", 0)), headers(set_schema(format=b"+w:2")), headers(set_schema(format=b"+m")),
    headers(no_pointer("buffers", 1)), headers(as_buffer(1, ends(0, 1, 0, 3))), headers(as_buffer(1, ends(0, 1, 1, 4))),
    headers(as_buffer(1, ends(-1, 1, 1, 3))), headers(set_array(length=1)),
    items(set_array(length=2)), items(set_array(length=4)), items(set_array(offset=1)), items(set_array(n_children=1)),
    items(set_array(null_count=1)), items(set_schema(format=b"+l")), items(set_schema(n_children=1)),
    items(no_pointer("array", 1)), items(no_pointer("schema", 1)),
    items(lambda node: set_array(length=2)(node.children[0])),
    items(lambda node: set_schema(name=b"name")(node.children[0])),
    items(lambda node: set_schema(format=b"n")(node.children[0])),
    items(lambda node: as_buffer(1, ends(0, 2, 1, 8))(node.children[0])),
    items(lambda node: set_array(null_count=1)(node.children[0])),
]  # fmt: skip


@pytest.mark.parametrize("n", range(len(BAD)))
def test_what_contradicts_itself_is_refused(n: int) -> None:
    node = table(text(), header_column())
    BAD[n](node)
    try:
        kind = str(len(read(node)))
    except BadArrow as error:
        kind = error.kind
    assert kind in ("malformed", "type", "missing", "headers")
    assert sorted(node.released) == ["array", "schema"]


def test_a_column_may_be_longer_than_its_table() -> None:
    node = table(text())
    node.children[0].array.length = 2**48  # the largest length that is taken
    assert len(read(node)) == 3


def test_a_column_may_be_null_throughout() -> None:
    nothing = Node(b"z", 3, [b"\0", ends(0, 0, 0, 0), b""], name=b"value", nulls=3)
    assert [row[1] for row in read(table(nothing))] == [None] * 3


def test_an_empty_column_may_begin_far_behind() -> None:
    far = Node(b"z", 0, [None, None, None], name=b"value", offset=2**48)
    assert read(Node(b"+s", 0, [None], [far])) == []


def test_null_marks_without_a_map_count_only_where_there_are_nulls() -> None:
    node = table(text())
    node.children[0].array.null_count = -1  # not counted, and no map: none is null
    assert len(read(node)) == 3
    node = table(Node(b"z", 3, [b"\x00", ends(0, 3, 3, 10), DATA], name=b"value"))
    assert [row[1] for row in read(node)] == [b"abc", b"", b"defghij"]


def test_an_empty_column_may_have_no_ends() -> None:
    for buffers in ([None, None, None], [None, b"", b""]):
        assert read(Node(b"+s", 0, [None], [Node(b"z", 0, buffers, name=b"value")])) == []


def view(size: int, block: int = 0, at: int = 0, content: bytes = b"") -> bytes:
    return struct.pack("<i", size) + (content.ljust(12, b"\0") if size <= 12 else struct.pack("<4sii", b"", block, at))


@pytest.mark.parametrize(
    ("views", "sound"),
    [
        (view(3, content=b"abc") + view(13, 0, 7) + view(20, 1, 0), True),
        (view(0) + view(12, content=b"x" * 12) + view(20, 0, 0), True),
        (view(0) + view(0) + view(-1), False),
        (view(0) + view(0) + view(-(2**31)), False),
        (view(0) + view(0) + view(13, 2), False),
        (view(0) + view(0) + view(13, -1), False),
        (view(0) + view(0) + view(13, 0, -1), False),
        (view(0) + view(0) + view(14, 0, 7), False),
        (view(0) + view(0) + view(21, 0, 0), False),
        (view(0) + view(0) + view(2**31 - 1, 1, 2**31 - 1), False),
    ],
)
def test_views(views: bytes, sound: bool) -> None:
    blocks = [bytes(range(20)), bytes(range(100, 120))]
    node = table(Node(b"vz", 3, [None, views, *blocks, struct.pack("<2q", 20, 20)], name=b"value"))
    if sound:
        assert len(read(node)) == 3
    else:
        with pytest.raises(BadArrow, match="contradicts itself in row 2") as error:
            read(node)
        assert (error.value.kind, error.value.row, error.value.column) == ("malformed", 2, "value")
    none = table(Node(b"vz", 3, [None, view(0) * 3, struct.pack("<q", 0)], name=b"value"))
    assert len(read(none)) == 3
    for buffers in ([None, view(0) * 3], [None, view(13) * 3, b"x" * 20, None], [None, view(13) * 3, None, bytes(8)]):
        with pytest.raises(BadArrow):
            read(table(Node(b"vz", 3, buffers, name=b"value")))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(-3, 14) | st.sampled_from([2**31 - 1, -(2**31)]), min_size=4, max_size=4),
    st.lists(st.integers(-2, 5), min_size=4, max_size=4),
    st.binary(min_size=1, max_size=1), st.binary(min_size=1, max_size=1), st.integers(-2, 4),
)  # fmt: skip
def test_ends_of_any_kind(bounds: list[int], lists: list[int], bits: bytes, more_bits: bytes, nulls: int) -> None:
    """Whatever stands in the buffers, the rows come out as they read, or are refused; nothing else is read."""
    bounds[3] = min(bounds[3], len(DATA))  # only the last end shows the size of a buffer
    names = Node(b"u", 3, [more_bits, ends(0, 2, 3, 8), b"abcdefgh"], name=b"key", nulls=-1)
    values = Node(b"z", 3, [None, ends(*bounds), DATA], name=b"value")
    structs = Node(b"+s", 3, [bits], [names, values], name=b"item", nulls=nulls)
    column = Node(b"+l", 3, [None, ends(*lists)], [structs], name=b"headers")
    node = table(Node(b"z", 3, [bits, ends(*bounds), DATA], name=b"value", nulls=nulls), column)
    try:
        rows = read(node)
    except BadArrow as error:
        assert error.kind in ("malformed", "headers")
        return
    assert [row[1] for row in rows] == [
        None if nulls and not bits[0] >> n & 1 else DATA[bounds[n] : bounds[n + 1]] for n in range(3)
    ]
    assert [len(row[2]) for row in rows] == [b - a for a, b in zip(lists, lists[1:], strict=False)]


# Streams


def test_a_stream_is_read_to_its_end_and_released() -> None:
    first, second = table(text()), table(text())
    stream = Streamed([first, second])
    assert len(read(stream)) == 6
    assert (stream.released, first.released, second.released) == (1, ["array", "schema"], ["array"])


@pytest.mark.parametrize(
    ("codes", "error", "match"),
    [
        ([5], b"no schema", "failed: no schema"),
        ([5], None, "failed: Input/output error"),
        ([0, 0, 12], b"\xff gone", "failed: \ufffd gone"),
    ],
)
def test_a_stream_that_fails(codes: list[int], error: bytes | None, match: str) -> None:
    node = table(text())
    stream = Streamed([node], codes, error)
    try:
        read(stream)
    except BadArrow as caught:
        assert caught.kind == "stream"
        assert match in str(caught)
    else:
        pytest.fail("nothing was raised")
    assert stream.released == 1


def test_streams_that_are_none() -> None:
    with pytest.raises(BadArrow, match="empty schema"):
        read(Streamed([]))
    stream = Streamed([table(text())])
    assert len(read(stream)) == 3
    with pytest.raises(BadArrow, match="released already") as error:
        read(stream)
    assert error.value.hint == "a stream can be read once"
    for field in ("get_schema", "get_next"):
        broken = Streamed([table(text())])
        setattr(broken.stream, field, type(getattr(broken.stream, field))())
        with pytest.raises(BadArrow, match="no functions"):
            read(broken)
    silent = Streamed([table(text())], [5])
    silent.stream.get_last_error = type(silent.stream.get_last_error)()
    with pytest.raises(BadArrow, match="Input/output error"):
        read(silent)


def test_a_batch_of_another_schema_in_a_stream() -> None:
    """The types are those of the schema: what does not look like them is refused."""
    for other in (table(numbers(b"value")), table(), table(text(), text(b"key"))):
        with pytest.raises(BadArrow, match="contradicts"):
            read(Streamed([table(text()), other]))


# Misuse


class Answers:
    """An object whose methods answer what they were given."""

    def __init__(self, name: str, answer: Any) -> None:
        setattr(self, name, lambda requested_schema=None: answer)


def test_objects_that_are_no_arrow_data() -> None:
    wrong = new_capsule(1, b"something", None)
    schema, array = table(text()).__arrow_c_array__()
    for thing in (
        Answers("__arrow_c_array__", None), Answers("__arrow_c_array__", (schema,)),
        Answers("__arrow_c_array__", (wrong, array)), Answers("__arrow_c_array__", (schema, wrong)),
        Answers("__arrow_c_array__", (array, schema)), Answers("__arrow_c_stream__", array),
        Answers("__arrow_c_stream__", None), object(), 5,
    ):  # fmt: skip
        with pytest.raises((TypeError, BadArrow)):
            ArrowSource(thing)


def test_an_array_is_taken_once() -> None:
    node = table(text())
    read(node)
    with pytest.raises(BadArrow, match="released already"):
        read(node)


def test_a_plan_belongs_to_its_source() -> None:
    one, other = ArrowSource(table(text())), ArrowSource(table(numbers(b"value")))
    with pytest.raises(ValueError, match="another source"):
        next_rows(other, RowPlan(one))
    assert repr(RowPlan(one)) == "<RowPlan value='value'>"
    for wrong in (None, 5):
        with pytest.raises(TypeError):
            RowPlan(wrong)  # type: ignore[arg-type]


def fed(encoder: ArrowEncoder, data: Any) -> None:
    source = ArrowSource(data)
    rows = next_rows(source, RowPlan(source))
    assert rows is not None
    encoder.feed(rows, 0, NOW)


def test_rows_and_numbers_that_are_not_there() -> None:
    encoder = ArrowEncoder(lambda topic: (1, 1000, 0), topic="t")
    assert encoder.feed(Rows(), 0, NOW) == 0
    source = ArrowSource(table(text()))
    rows = next_rows(source, RowPlan(source))
    assert rows is not None
    for first in (-1, 4):
        with pytest.raises(IndexError):
            encoder.feed(rows, first, NOW)
    with pytest.raises(ValueError, match="before 1970"):
        encoder.feed(rows, 0, -2)
    assert encoder.feed(rows, 3, NOW) == 3
    assert encoder.records == 0


@pytest.mark.parametrize(
    "answer", [None, 5, (1,), (0, 1000, 0), (-1, 1000, 0), (2**40, 1000, 0), (1, 60, 0), (1, 2**31, 0), (1, 1000, -1)]
)
def test_a_resolver_that_answers_nonsense(answer: Any) -> None:
    encoder = ArrowEncoder(lambda topic: answer, topic="t")
    with pytest.raises((TypeError, ValueError)):
        fed(encoder, table(text()))
    with pytest.raises(RuntimeError, match="not whole"):
        encoder.take()


def test_a_resolver_that_uses_the_encoder() -> None:
    def resolve(topic: str) -> tuple[int, int, int]:
        for use in (encoder.seal, encoder.take, lambda: fed(encoder, table(text()))):
            with pytest.raises(RuntimeError, match="one at a time"):
                use()
        return 1, 1000, 0

    encoder = ArrowEncoder(resolve, topic="t")
    fed(encoder, table(text()))
    assert encoder.records == 3


def test_names_of_topics_that_are_no_text() -> None:
    topics = Node(b"u", 3, [None, ends(0, 1, 2, 3), b"ab\xff"], name=b"topic")
    met: list[str] = []

    def resolve(topic: str) -> tuple[int, int, int]:
        met.append(topic)
        return 1, 1000, 0

    with pytest.raises(BadArrow, match="no text"):
        fed(ArrowEncoder(resolve), table(text(), topics))
    assert met == ["a", "b"]
    with pytest.raises(BadArrow, match="row 0 has no topic"):
        fed(ArrowEncoder(resolve), table(text()))


def test_many_topics_are_each_asked_for_once() -> None:
    names = [b"topic %03d" % i for i in range(500)]
    bounds, met = ends(*range(0, 9 * 501, 9)), list[str]()

    def resolve(topic: str) -> tuple[int, int, int]:
        met.append(topic)
        return 1, 1000, 0

    encoder = ArrowEncoder(resolve)
    for _ in range(2):
        columns = [Node(b"u", 500, [None, bounds, b"".join(names)], name=name) for name in (b"topic", b"value")]
        fed(encoder, Node(b"+s", 500, [None], columns))
    encoder.seal()
    found = {parcel.topic: [r.value for r in decode(parcel, scan(parcel))] for parcel in encoder.take()}
    assert found == {name.decode(): [name] * 2 for name in names}
    assert met == [name.decode() for name in names]


def test_a_parcel_of_nothing() -> None:
    assert bytes(memoryview(Parcel())) == b""  # type: ignore[call-arg, arg-type]


def test_parcels_outlive_their_encoder() -> None:
    encoder = ArrowEncoder(lambda topic: (1, 1000, 0), topic="t")
    fed(encoder, table(text()))
    encoder.seal()
    (parcel,) = encoder.take()
    view = memoryview(parcel)
    before = bytes(view)
    assert repr(parcel) == f"<Parcel t-0: 3 records, {len(before)} B>"
    del encoder, parcel
    fed(ArrowEncoder(lambda topic: (1, 1000, 0), topic="t"), table(text()))
    assert bytes(view) == before


def test_bytes_at_any_address() -> None:
    """Buffers need not be aligned."""
    raw = pa.py_buffer(b"x" + ends(0, 3, 3, 10))
    value = pa.Array.from_buffers(pa.binary(), 3, [None, raw.slice(1), pa.py_buffer(DATA)])
    times = pa.py_buffer(b"xyz" + struct.pack("<3q", 5, 6, 7))
    timestamp = pa.Array.from_buffers(pa.timestamp("ms"), 3, [None, times.slice(3)])
    assert [row[3] for row in read(pa.record_batch({"value": value, "timestamp": timestamp}))] == [5, 6, 7]
