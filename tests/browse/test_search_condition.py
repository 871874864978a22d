"""The browser's search by a condition: the next record that matches, what is a condition and what a key."""

from functools import partial
from pathlib import Path

import pytest

import kafkalog
from kafkalog.browse.search import Search, find_match, parse_search, predicate_for
from kafkalog.errors import CorruptRecord, IllegalArgument
from kafkalog.log.typed_keywords import select_matching
from kafkalog.storage.readonly.view import LogView
from kafkalog.where import Expression, parse

T = 1_700_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "t-0"
    with kafkalog.open(directory, "a") as log:
        for base in range(0, 2000, 100):
            rows = [(b"k%d" % n, b"v" * (n % 10) + bytes(1000), T + n) for n in range(base, base + 100)]
            log.append(rows, compression="zstd" if base % 200 else "none")
    return directory


def test_the_next_record_that_matches(path: Path) -> None:
    view = LogView(str(path))
    wanted = parse("size == 1007 and key like '%5_' and partition == 0 and topic == 't'")
    assert isinstance(wanted, Expression)
    found, start = [], 0
    while True:
        search = find_match(view, wanted, start, lambda offset, read: True)
        assert search.is_done
        if search.offset is None:
            assert search.next_offset == 2000
            break
        found.append(search.offset)
        start = search.next_offset
    assert found == [n for n in range(2000) if n % 10 == 7 and n // 10 % 10 == 5]
    view.close()


def test_a_search_stops_and_goes_on(path: Path) -> None:
    view = LogView(str(path))
    wanted = parse("key == 'k1999'")
    assert find_match(view, wanted, 0, lambda offset, read: False) == Search(None, 0, 0, False)
    first = find_match(view, wanted, 0, lambda offset, read: True, 100_000)
    assert not first.is_done and first.read_bytes >= 100_000 and 0 < first.next_offset < 1999
    assert find_match(view, wanted, first.next_offset, lambda offset, read: True).offset == 1999
    view.close()


def test_damage_ends_it(path: Path) -> None:
    file = next(path.glob("*.log"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    view = LogView(str(path))
    assert find_match(view, parse("key == 'k5'"), 0, lambda offset, read: True).offset == 5
    with pytest.raises(CorruptRecord):
        find_match(view, parse("key == 'k1999'"), 0, lambda offset, read: True)
    view.close()


def test_types_are_those_of_values_behind_damage(tmp_path: Path) -> None:
    """A search that begins behind damage, for a path that needs types of the first values."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for number in range(4):
            log.append([(b"k", b'{"a.b": %d}' % number)])
    file = tmp_path / "t-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[70] ^= 1
    file.write_bytes(data)
    view = LogView(str(tmp_path / "t-0"))
    wanted = parse_search('value."a.b" > 1', decodes=True)
    assert isinstance(wanted, Expression)
    predicate = predicate_for(wanted, partial(select_matching, {"value": "json"}), view)
    assert find_match(view, predicate, 1, lambda offset, read: True).offset == 2
    view.close()


def test_what_is_a_condition() -> None:
    for text in ("u-17", "value", "a in", "<x>", "key", "is it", r"\xff", "and or not"):
        assert isinstance(parse_search(text), bytes), text
    for text in ("key == 'a'", "size > 5", "key LIKE 'a%'", "value is null", "offset in (1, 2)", "offset==1"):
        assert isinstance(parse_search(text), Expression), text
    for text in ("ofset > 5", "key == a", "key > 5", "value.a == 1"):
        with pytest.raises(IllegalArgument):
            parse_search(text)
