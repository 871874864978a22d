"""Templates from kcat's flags: delimiters, -f formats, -J."""

import pytest

from kafkalog._core.text import template as kind
from kafkalog.errors import IllegalArgument
from kafkalog.tools.consume.templates import delimited, formatted, json_lines


def test_plain_values() -> None:
    assert delimited() == [(kind.VALUE, b""), (kind.LITERAL, b"\n")]


def test_literals_of_a_format_are_joined() -> None:
    pieces = formatted(r"a%t\t%p\x41\\%%b%s", topic="t-1", partition=7)
    assert pieces == [(kind.LITERAL, b"at-1\t7A\\%b"), (kind.VALUE, b"")]
    assert formatted("", topic="t", partition=0) == []
    assert formatted("\\xff\udcfe", topic="t", partition=0) == [(kind.LITERAL, b"\xff\xfe")]


@pytest.mark.parametrize("text", ["%q", "%", "100%", "\\q", "\\", "\\x4", "%\n"])
def test_what_means_nothing_in_a_format_is_refused(text: str) -> None:
    with pytest.raises(IllegalArgument, match="unknown (directive|escape) .* in a format"):
        formatted(text, topic="t", partition=0)


def test_an_unknown_encoding_is_refused() -> None:
    for call in (
        lambda: delimited(value_encoding="utf-16"),
        lambda: delimited(key_delimiter=b":", key_encoding="ascii"),
        lambda: json_lines(topic="t", partition=0, value_encoding="utf-16"),
        lambda: formatted("%s", topic="t", partition=0, key_encoding="x"),
    ):
        with pytest.raises(IllegalArgument, match="unknown encoding"):
            call()
