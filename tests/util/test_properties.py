"""Java's `.properties` text."""

import pytest

from kafkalog.util.properties import parse_properties


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        (b"a=1\nb:2\nc 3\nd\t=\t4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        (b"# a=1\n! b=2\n\n   \n  # c=3\n  d=4", {"d": "4"}),
        (b"a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        (b"a=1\na=2\n", {"a": "2"}),
        (b"a=x\\\n   y\\\n#z\n", {"a": "xy#z"}),
        (b"a=x\\\\\nb=y\n", {"a": "x\\", "b": "y"}),
        (b"a\\=b\\ c=d\\:e\n", {"a=b c": "d:e"}),
        (b"a=\\u00e9\\t\\n\\q\n", {"a": "\u00e9\t\nq"}),
        (b"a=\xe9 = :\n", {"a": "\u00e9 = :"}),
        (b"a==b\nc=\nd", {"a": "=b", "c": "", "d": ""}),
        (b"a=\\u12", {"a": "u12"}),
        (b"a=\\uD83D\\uDE00 \\\n \\uD83D\\\n\\uDE01\n", {"a": "\U0001f600 \U0001f601"}),
        (b"a=x\\", {"a": "x"}),
        (b"", {}),
    ],
)
def test_pairs(content: bytes, pairs: dict[str, str]) -> None:
    assert parse_properties(content) == pairs


def test_a_file_of_nothing_but_continued_lines_is_read_in_one_pass() -> None:
    """It was quadratic: ten seconds for a file as large as is taken."""
    assert parse_properties(b"k=\\\n" + b"a\\\n" * 300_000) == {"k": "a" * 300_000}
