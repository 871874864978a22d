"""Counts before and after in, a verdict out; and the page's table."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asv_benchmarks.counting.callgrind import Counts, totals
from asv_benchmarks.counting.kept import ACCEPTED, BEGIN, END, KEPT, Kept, accepted, read, table, with_table
from asv_benchmarks.counting.toolchain import differences
from asv_benchmarks.counting.verdict import NOISY, THRESHOLD, judge, report_lines
from asv_benchmarks.hot_paths.all import PATHS

COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 10**9))


def test_a_path_beyond_the_threshold_is_slower_with_both_counts() -> None:
    verdict = judge({"a": 1000, "b": 1000, "c": 1000}, {"a": 1031, "b": 1029, "c": 969})
    assert [str(change) for change in verdict.slower] == ["a: 1,000 -> 1,031 instructions (+3.1 %)"]
    assert [change.name for change in verdict.faster] == ["c"]
    assert not verdict.is_good
    assert report_lines(verdict, "v1.0", "this tree")[0] == "slower  a: 1,000 -> 1,031 instructions (+3.1 %)"
    assert report_lines(verdict, "v1.0", "this tree")[-1] == "1 hot paths are slower, and 0 lost, since v1.0"


def test_the_largest_change_comes_first() -> None:
    assert [c.name for c in judge({"a": 100, "b": 100, "c": 100}, {"a": 110, "b": 150, "c": 120}).slower] == list("bca")


def test_a_path_that_is_no_longer_counted_is_no_good_end_and_a_new_one_is() -> None:
    assert not judge({"a": 1}, {}).is_good
    verdict = judge({}, {"a": 1})
    assert verdict.is_good and verdict.new == ("a",)


def test_what_is_accepted_and_what_threads_do_may_take_more() -> None:
    noisy = next(iter(NOISY))
    assert judge({noisy: 1000}, {noisy: 1000 + int(900 * NOISY[noisy])}).is_good
    assert judge({"a": 1000}, {"a": 1049}, accepted={"a": 0.05}).is_good
    assert not judge({"a": 1000}, {"a": 1051}, accepted={"a": 0.05}).is_good


def test_of_what_is_counted_twice_the_lower_count_stands() -> None:
    counts = Counts({"a": 10, "b": 10, "c": 10})
    counts.take_lower(Counts({"a": 9, "b": 11, "d": 1}))
    assert counts.instructions == {"a": 9, "b": 10, "c": 10, "d": 1}


@given(COUNTS)
def test_a_count_against_itself_is_good(counts: dict[str, int]) -> None:
    assert judge(counts, counts).is_good and not judge(counts, counts).faster


@given(COUNTS, COUNTS)
def test_every_path_has_one_place_at_most_and_the_way_back_is_the_opposite(
    one: dict[str, int], two: dict[str, int]
) -> None:
    there, back = judge(one, two, threshold=0), judge(two, one, threshold=0)
    assert {c.name for c in there.slower} == {c.name for c in back.faster}
    assert set(there.new) == set(back.lost) == set(two) - set(one)
    assert not {c.name for c in there.slower} & {c.name for c in there.faster}


def test_the_totals_of_a_dump_are_read_by_the_names_of_its_events() -> None:
    dump = ["version: 1", "events: Ir Dr DLmr", "fn=(1) f", "0 5 1 0", "totals: 12 3"]
    assert totals(dump) == {"Ir": 12, "Dr": 3, "DLmr": 0}
    with pytest.raises(ValueError, match="without a total"):
        totals(dump[:-1])


def test_the_table_goes_between_its_marks_and_nowhere_else() -> None:
    name = next(iter(PATHS))
    lines = table(Kept("0" * 40, "quick", {"compiler": "gcc 12"}, {name: 12_000}, {name: 100}))
    assert f"| {name} | 120 per {PATHS[name].item} | 12,000 |" in lines
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    once = with_table(page, lines)
    assert once.startswith(f"before\n{BEGIN}\nCommit 000000000000") and once.endswith(f"{END}\nafter\n")
    assert "old" not in once and with_table(once, lines) == once
    with pytest.raises(ValueError, match="no place"):
        with_table("before\nafter\n", lines)


def test_what_another_toolchain_has_is_named() -> None:
    assert differences({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": ""}) == ["b 2 / 3", "c none / none"]


def test_only_hot_paths_are_accepted(tmp_path: Path) -> None:
    assert all(0 < share < 1 for share in accepted(ACCEPTED).values())
    file = tmp_path / "accepted.toml"
    file.write_text('[percent]\n"nothing like it" = 5\n')
    with pytest.raises(ValueError, match="nothing like it"):
        accepted(file)


def test_the_counts_that_are_kept_are_of_hot_paths() -> None:
    held = read(KEPT)
    if held is not None:
        assert set(held.instructions) <= set(PATHS)
        assert all(count > 0 for count in held.instructions.values()) and set(held.items) == set(held.instructions)
    assert read(KEPT.with_name("absent.json")) is None


def test_the_threshold_is_above_the_noise_that_the_page_tells_of() -> None:
    assert 0.01 <= THRESHOLD <= 0.05
