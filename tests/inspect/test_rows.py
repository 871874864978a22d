"""Tables as text: aligned whatever the characters, within the width, nothing in them that a terminal would act on."""

import pickle
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from kafkalog.errors import IllegalArgument
from kafkalog.inspect.rows import Column, Rows
from kafkalog.inspect.text import MIN_COLUMNS
from kafkalog.inspect.values import Kind
from kafkalog.inspect.width import columns_of, cut, escape_bytes, escape_text

WIDE = "日本語のトピック"
MARKED = "e\u0301a\u0308" * 4
HOSTILE = [
    "\x1b[31mred\x1b[0m", "a\nb\tc\rd", "\u202eright to left\u2066", "\u200bunseen", "\x9b2J", "z" + "\u0301" * 30,
    "\u0301leading", "back\\slash", "\udcff surrogate", WIDE, MARKED, "", "<b>&amp;</b>", "\u2028line",
]  # fmt: skip
BYTES = [one.encode("utf-8", "surrogateescape") for one in HOSTILE]
KINDS: dict[Kind, st.SearchStrategy[object]] = {
    "text": st.text(max_size=60) | st.sampled_from(HOSTILE),
    "name": st.text(max_size=200) | st.sampled_from(HOSTILE),
    "key": st.none() | st.binary(max_size=60) | st.sampled_from(BYTES),
    "number": st.none() | st.integers(-(2**63), 2**63 - 1),
    "size": st.none() | st.integers(0, 2**63 - 1),
    "time": st.none() | st.integers(-1, 2**63 - 1),
    "duration": st.integers(0, 2**63 - 1),
    "ratio": st.floats(0, 1e12),
    "rate": st.none() | st.floats(0, 1e15),
    "share": st.floats(0, 1),
    "bar": st.floats(-1, 2),
}  # fmt: skip


def getter(at: int) -> Callable[[tuple[object, ...]], object]:
    return lambda row: row[at]


@st.composite
def tables(draw: st.DrawFn) -> Rows[tuple[object, ...]]:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=9))
    columns = [Column(draw(st.text(max_size=20)), getter(at), kind) for at, kind in enumerate(kinds)]  # type: ignore[arg-type]
    rows = draw(st.lists(st.tuples(*(KINDS[kind] for kind in kinds)), max_size=12))  # type: ignore[index]
    notes = draw(st.lists(st.text(max_size=90), max_size=2))
    return Rows(rows, columns, title=draw(st.text(max_size=200)), notes=notes)


@given(tables(), st.integers(1, 200), st.booleans(), st.none() | st.integers(1, 6))
def test_no_line_is_wider_than_the_terminal_or_more_than_text(
    rows: Rows[tuple[object, ...]], width: int, ascii_only: bool, most: int | None
) -> None:
    text = rows.text(width, ascii_only=ascii_only, most=most)
    for line in text.split("\n"):
        assert columns_of(line) <= max(width, MIN_COLUMNS)
        assert all(char.isprintable() for char in line)
        assert not ascii_only or line.isascii()


FIVE = {"who": "name", "key": "key", "count": "number", "part": "bar", "bytes": "size"}


@given(st.lists(st.tuples(*(KINDS[kind] for kind in FIVE.values())), min_size=1, max_size=8))  # type: ignore[index]
def test_columns_begin_and_end_where_their_heading_does(rows: list[tuple[object, ...]]) -> None:
    columns = [Column(name, getter(at), kind) for at, (name, kind) in enumerate(FIVE.items())]  # type: ignore[arg-type]
    head, *lines = Rows(rows, columns).text(2000, ascii_only=False).split("\n")
    key, last = columns_of(head[: head.index("KEY")]), columns_of(head)
    for line, row in zip(lines, rows, strict=True):
        before, behind = split_at(line, key)
        assert before.endswith("  ") and columns_of(before) == key
        assert behind.startswith(escape_bytes(row[1]))  # type: ignore[arg-type]
        assert columns_of(line) == last  # a number stands at the right end of its column


def split_at(line: str, column: int) -> tuple[str, str]:
    """The line in two parts, the first as many columns wide; marks stay with their character."""
    at = 0
    while columns_of(line[:at]) < column or (at < len(line) and columns_of(line[at]) == 0):
        at += 1
    return line[:at], line[at:]


@given(st.text() | st.sampled_from(HOSTILE))
@example("\x00\x7f\x80\x9f\u200e\u200f\u061c\u2066\u2067\u2068\u2069\u202a\u202b\u202c\u202d\u202e\ufeff\u00ad")
def test_what_is_shown_can_be_told_apart_and_harms_nobody(text: str) -> None:
    safe = escape_text(text)
    assert not {unicodedata.category(char) for char in safe} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    if not any("\ud800" <= char <= "\udfff" for char in text):  # those are bytes that were no UTF-8
        # an escape begins with a backslash, and one of the text is doubled: reading them back gives the text
        assert safe.encode("ascii", "backslashreplace").decode("unicode_escape") == text
    assert len(safe) == 0 or columns_of(safe[0]) > 0


@given(st.text(alphabet=st.characters(categories=("L", "N", "P", "S", "Mn"))), st.integers(4, 30), st.booleans())
def test_a_cut_text_keeps_within_its_width(text: str, width: int, middle: bool) -> None:
    text = escape_text(text)
    short = cut(text, width, middle=middle)
    assert columns_of(short) <= width
    assert short == text or "..." in short


@pytest.mark.parametrize("text", [WIDE, MARKED, "orders", "Ελλάδα", "한국어", "🙂 ok", "Ｆｕｌｌ", "ｶﾅ", "नमस्ते"])
def test_widths_are_those_that_rich_counts(text: str) -> None:
    assert columns_of(text) == cell_len(text)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "null"), (b"", '""'), (b"null", '"null"'), (b"u-17", "u-17"), (b"\xff\x00k", "\\xff\\x00k"),
        ("日本".encode(), "日本"), (b"a" * 90, "a" * 80 + "..."), (b"\\x00", "\\\\x00"),
    ],
)  # fmt: skip
def test_keys(data: bytes | None, text: str) -> None:
    assert escape_bytes(data) == text


TOPICS: Rows[tuple[str, int, int]] = Rows(
    [("orders", 1204331, 2 << 30), ("日本", 7, 300), ("a-topic-with-" + "a-long-name-" * 10, 0, 0)],
    (Column("topic", getter(0), "name"), Column("records", getter(1), "number"), Column("size", getter(2), "size")),
    title="topics", notes=["a note that is longer than the table is wide, so that it has to go on in the next line"],
)  # fmt: skip


def test_a_table_of_60_columns() -> None:
    lines = TOPICS.text(60, ascii_only=False).split("\n")
    assert {columns_of(line) for line in lines[1:5]} == {60}
    assert lines[4].startswith("a-topic-wit") and "..." in lines[4] and "long-name-" in lines[4]
    assert lines[5:] == ["a note that is longer than the table is wide, so that it has", "to go on in the next line"]


def test_many_columns_stand_one_below_the_other_with_the_first_one() -> None:
    columns = [Column("who", getter(0), "name")] + [Column(f"figure {n}", getter(n), "number") for n in range(1, 9)]
    rows = Rows([("orders-0", *range(10**9, 10**9 + 8)), ("b", *range(8))], columns)
    blocks = rows.text(60, ascii_only=True).split("\n\n")
    assert len(blocks) == 3
    heads = [block.split("\n")[0].split("  ") for block in blocks]
    assert all(head[0] == "WHO" for head in heads)
    assert [name.strip() for head in heads for name in head if "FIGURE" in name] == [f"FIGURE {n}" for n in range(1, 9)]
    assert all(block.split("\n")[1].startswith("orders-0 ") for block in blocks)


def test_rows_in_the_middle_are_left_out_of_a_repr() -> None:
    rows = Rows(range(1000), (Column("n", lambda n: n, "number"),))
    lines = repr(rows).split("\n")
    assert len(lines) == 42
    assert (lines[1], lines[20], lines[22], lines[-1]) == ("  0", " 19", "980", "999")
    assert lines[21] == "... 960 more rows ..."


def test_a_terminal_that_takes_ascii_only() -> None:
    text = TOPICS.text(60, ascii_only=True)
    assert text.isascii() and "\\u65e5\\u672c" in text
    assert Rows([0.5], (Column("part", lambda x: x, "bar"),)).text(60, ascii_only=True) == "PART\n########"


def test_it_is_a_tuple() -> None:
    assert TOPICS[0] == ("orders", 1204331, 2 << 30) and len(TOPICS) == 3
    assert TOPICS["records"] == [1204331, 7, 0]
    assert isinstance(TOPICS[1:], Rows) and TOPICS[1:]["size"] == [300, 0]
    assert TOPICS.dicts()[1] == {"topic": "日本", "records": 7, "size": 300}
    assert TOPICS._ipython_key_completions_() == ["topic", "records", "size"]
    assert tuple(TOPICS) == TOPICS and pickle.loads(pickle.dumps(TOPICS)) == TOPICS
    with pytest.raises(IllegalArgument, match="no column 'recrods'.*the columns are topic, records, size"):
        TOPICS["recrods"]


def test_nothing_is_shown_as_none() -> None:
    assert Rows((), TOPICS.columns).text(80) == "(none)"
    assert "(none)" in Rows((), TOPICS.columns).html()
