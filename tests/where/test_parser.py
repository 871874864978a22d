"""The language: its meaning, refused input and its error, the text of a tree."""

import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog import where
from kafkalog.errors import IllegalArgument
from kafkalog.where.nodes import And, Compare, Field, In, IsNull, Like, Literal, Node, Not, Or
from tests.trees import ROOT
from tests.where.expressions import NODES

TOTAL = Field(("value", "order", "total"))


@settings(max_examples=200)
@given(NODES)
def test_the_text_of_a_tree_has_that_tree(node: Node) -> None:
    expression = where.parse(str(node))
    assert expression.node == node
    assert where.parse(str(expression)) == expression and hash(where.parse(str(expression))) == hash(expression)


def test_the_example_of_the_page() -> None:
    expression = where.parse("value.order.total > 100 and header.trace is not null and key like 'eu-%'")
    assert expression.node == And((
        Compare(">", TOTAL, Literal(100)), Not(IsNull(Field(("header", "trace")))), Like(Field(("key",)), "eu-%"),
    ))  # fmt: skip
    assert expression.names == (
        ("value", "headers", "key"), ((),), (("order", "total"),), ("trace",)
    )
    assert pickle.loads(pickle.dumps(expression)) == expression


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("offset>1 AND NOT offset>5 Or key IS Null", "(offset > 1 and not offset > 5) or key is null"),
        ("timestamp > 5 and value_size == 0 and headers.x == ''", "time > 5 and size == 0 and header.x == ''"),
        ("5 < offset", "offset > 5"),
        ("header.a.b == 'x'", 'header."a.b" == \'x\''),
        ("value.\"a \"\"b\"\"\".not == 1", 'value."a ""b"""."not" == 1'),
        ("key not in ('a', 'b')", "not key in ('a', 'b')"),
        ("key not like 'a' and key not matches 'b'", "not (key like 'a') and not (key matches 'b')"),
        ("((((offset == 1))))", "offset == 1"),
        ("offset == 1.0 and offset == 1e2 and offset == .5", "offset == 1 and offset == 100 and offset == 0.5"),
        ("value.content-type == 'x'", 'value."content-type" == \'x\''),
        ("value.order == 1", "value.\"order\" == 1"),
        ("key == X'0aFF'", "key == x'0aff'"),
        ("key\n==\t'it''s'", "key == 'it''s'"),
    ],
)
def test_other_words_for_the_same(text: str, same: str) -> None:
    assert where.parse(text) == where.parse(same)


def test_what_binds_closer() -> None:
    a, b, c = (Compare("==", Field(("offset",)), Literal(n)) for n in (1, 2, 3))
    assert where.parse("offset == 1 or offset == 2 and not offset == 3").node == Or((a, And((b, Not(c)))))
    assert where.parse("not (offset == 1 or offset == 2)").node == Not(Or((a, b)))
    assert where.parse("offset in (1, 2, null)").node == In(Field(("offset",)), (Literal(1), Literal(2), Literal(None)))


REFUSED = [
    ("", "the expression is empty, at character 1 "),
    ("offset >", "the expression ends too early, at character 9 .*a number"),
    ("(offset > 1", r"ends too early, at character 12 .*expected \)"),
    ("offset > 1)", r"unexpected '\)', at character 11 "),
    ("ofset > 1", "no field 'ofset', at character 1 .*did you mean offset?"),
    ("cents > 1", "no field 'cents', at character 1 .*a field of a decoded value is value.cents$"),
    ("order.total > 1", "no field 'order', .*a field of a decoded value is value.order.total$"),
    ("offset > 1 and Ofset > 1", "no field 'Ofset', at character 16 .*did you mean offset?"),
    ("offset = 1", "unexpected '=', at character 8 .*write =="),
    ("offset <> 1", "unexpected '>', at character 9|unexpected '<>'"),
    ("offset > 1 && key == 'a'", "unexpected '&&', at character 12 .*write and"),
    ('key == "a"', "unexpected '\"a\"', at character 8 .*single quotes"),
    ("key == 'a", "unexpected .*at character 8 .*ends with a single quote"),
    ("offset + 1 > 2", r"unexpected '\+', at character 8 .*no arithmetic"),
    ("offset in ()", r"unexpected '\)', at character 12 "),
    ("1 == 1", "1 and 1 are constants"),
    ("'a' like 'a'", "'a' is a constant.*like needs a field"),
    ("offset == null", "nothing is == null.*is not null"),
    ("header == 'x'", "header needs a name, at character 1"),
    ("topic.a == 'x'", "topic has no parts, at character 1"),
    ("offset == 'a'", "offset is a whole number and 'a' is text, at character 1"),
    ("offset like '1%'", "offset is a whole number and like needs text"),
    ("topic == 5", "topic is text and 5 is a whole number.*write '5'"),
    ("header.n > 5", "header.n is bytes and 5 is a whole number"),
    ("time > 'noon'", "'noon' is not a time, but time is a time, at character 1 .*ISO-8601"),
    ("time > true", "true is not a time"),
    (r"key like 'a\b'", "a backslash in a pattern of like .*at character 12 "),
    ("offset == 1e999", "1e999 is beyond every type, at character 11"),
    ("offset == 1e99999999999999999999", "is beyond every type"),
    ("offset == " + "1" * 61, "a number has 61 characters"),
    ('value."" == 1', "a name is empty, at character 7"),
    ("key == '\udc80'", "no character that UTF-8 has, at character 9"),
    ("offset == 1 " * 2000, "24,000 characters"),
    ("not " * 51 + "offset == 1", "nested more than 50 levels"),
    ("offset in (" + "1," * 1000 + "1)", "1,001 values"),
    (" and ".join(["offset==1"] * 1001), "more than 1,000 parts"),
    ("key matches '" + "a" * 1001 + "'", "1,001 characters"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[text[:20] for text, _ in REFUSED])
def test_what_is_wrong_is_told_with_its_position(text: str, message: str) -> None:
    with pytest.raises(IllegalArgument, match=message) as error:
        where.parse(text)
    assert len(str(error.value)) < 400


WORDS = "offset value.a == < 'x' 1 - and or not ( ) in is null . ' \" ,".split()


def test_text_only() -> None:
    with pytest.raises(TypeError, match="an expression is text, got int"):
        where.parse(5)  # type: ignore[arg-type]


@settings(max_examples=200)
@given(st.text(max_size=40) | st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    try:
        expression = where.parse(text)
    except IllegalArgument as error:
        assert "character" in str(error) or "null" in str(error)
    else:
        assert where.parse(str(expression)) == expression
        expression.bounds()


def test_fields() -> None:
    assert where.parse_field('value.a."b c"').path == ("value", "a", "b c")
    assert where.parse_field("timestamp").path == ("time",)
    for text, message in [("value.a == 1", "unexpected '=='"), ("vlaue.a", "did you mean value"), ("", "give a field")]:
        with pytest.raises(IllegalArgument, match=message):
            where.parse_field(text)


def test_hints_of_kinds() -> None:
    hints = where.parse(
        "value.a > 1 and value.a < 2.5 and value.b.c like 'x' and value.d and value.e is null and key.f == 'x' "
        "and value.g == 1 and value.g == 'x' and value.g == 2 and value.h == value.i"
    ).hints
    kinds = {".".join(path): None if kind is None else kind.name for path, kind in hints["value"].items()}
    assert kinds == {
        "a": "FLOAT", "b.c": "TEXT", "d": "BOOLEAN", "e": "NULL", "g": None, "h": None, "i": None
    }
    assert [kind.name for kind in hints["key"].values() if kind] == ["TEXT"]


def test_parsing_imports_no_arrow() -> None:
    code = "import sys; from kafkalog import where; assert 'lark' not in sys.modules"
    code += "; where.parse('offset > 1').bounds(); assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
