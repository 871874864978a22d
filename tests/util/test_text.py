"""Sizes and names in a repr."""

import pytest

from kafkalog.util.text import human_size, shortened


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"), (1, "1 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3277, "3.2 KiB"), (1048575, "1.0 MiB"),
        (1 << 20, "1.0 MiB"), (104856093, "100.0 MiB"), (2254857830, "2.1 GiB"), (5 << 40, "5.0 TiB"),
        (5000 << 40, "5000.0 TiB"),
    ],
)  # fmt: skip
def test_human_size(size: int, text: str) -> None:
    assert human_size(size) == text


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("orders-0", 8, "orders-0"), ("orders-10", 8, "o...s-10"), ("/data/orders-0", 11, "/d...ders-0"),
        ("abcdefgh", 0, "...gh"),
    ],
)  # fmt: skip
def test_shortened(text: str, width: int, shown: str) -> None:
    assert shortened(text, width) == shown
    assert len(shown) <= max(width, 5)
