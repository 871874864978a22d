"""Escapes of the command line, as bytes."""

import pytest

from kafkalog.errors import IllegalArgument
from kafkalog.tools.escapes import unescape


def test_a_delimiter_is_the_bytes_that_were_typed() -> None:
    assert unescape(r"\n\t\r\0\\\x7f\xe9") == b"\n\t\r\0\\\x7f\xe9"
    assert unescape("\udcff\u00e9") == b"\xff\xc3\xa9"


@pytest.mark.parametrize("text", [r"\q", "\\", r"\x4", r"\xgg", "\\\u00e9", "a\\\n"])
def test_an_escape_that_means_nothing(text: str) -> None:
    with pytest.raises(IllegalArgument, match="the escape"):
        unescape(text)
