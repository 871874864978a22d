"""Regular expressions of strangers: what they match, what is refused, and that none takes for ever."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.util.safe_pattern import MAX_CACHED, MAX_STEPS, PatternError, SafePattern, matching

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "(a|b)", "(?:ab)", "(ab|)", r"\d", r"\w", "-", r"\.", "[a-c-]"])
PIECES = st.builds(lambda atom, count: atom + count, ATOMS, st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "*?"]))
PATTERNS = st.lists(st.lists(PIECES, max_size=4).map("".join), min_size=1, max_size=3).map("|".join)
TEXTS = st.text(alphabet="ab-.1", max_size=8)


@given(PATTERNS, TEXTS)
def test_texts_match_as_with_the_matcher_of_python(pattern: str, text: str) -> None:
    assert SafePattern(pattern).matches(text) == (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "", True), ("", "a", False), ("^a$", "a", True), ("a^b", "ab", False), (r"\Aa\z", "a", True),
        (r"a\b-\bb", "a-b", True), (r"a\Bb", "ab", True), (r"a\bb", "ab", False), ("(?i)aB[c]", "AbC", True),
        ("(?i)[^a]", "A", False), ("a(?i:b)c", "aBc", True), ("a(?i:b)c", "aBC", False), ("(?i)a(?-i)b", "AB", False),
        (".", "\n", False), ("(?s).", "\n", True), ("(?m)a$\n^b", "a\nb", True), ("a$\n^b", "a\nb", False),
        (r"\Qa.b\E.", "a.bc", True), (r"\Qa.b", "axb", False), ("[[:alpha:]_]+", "ab_", True),
        ("[[:^alpha:]]", "a", False), ("[]a]+", "]a", True), (r"[\d-]+", "1-2", True), (r"[^\W]", "_", True),
        (r"\x41\x{1F600}", "A\U0001f600", True), ("(?P<name>a)(?<b>b)", "ab", True), ("a{,2}", "a{,2}", True),
        ("a{2,}", "aaa", True), ("a{2,}", "a", False), ("a{0}", "", True), ("(a*)*b", "aab", True), ("é+", "éé", True),
        (r"\t\n", "\t\n", True), ("(|a)+", "aa", True), ("x{", "x{", True),
    ],
)  # fmt: skip
def test_syntax(pattern: str, text: str, expected: bool) -> None:
    assert SafePattern(pattern).matches(text) is expected


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[", "[a", "*", "+a", "a**", "a*{2}", "|*", r"\1", r"(a)\1", "(?=a)", "(?<=a)", "(?!a)", "(?<!a)",
     r"\pL", "[b-a]", "[[:none:]]", "a{2,1}", "a{1001}", "(?z)", r"\x", r"\x{110000}", r"\xzz", "\\", "(?P<a", "(?",
     "(?P<a-b>c)", "(?--i)", "(" * 200 + ")" * 200, "(a{1000}){1000}", r"\é", r"[\d-a]x[z-\d]"],
)  # fmt: skip
def test_what_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        SafePattern(pattern)


@given(st.text(alphabet="ab()[]{}*+?|^$\\.-:<>PQE!=,0129imsxd", max_size=30), TEXTS)
def test_any_text_is_a_pattern_or_is_refused(pattern: str, text: str) -> None:
    try:
        found = SafePattern(pattern)
    except PatternError:
        return
    assert found.matches(text) in (True, False)


@pytest.mark.parametrize("pattern", ["(a+)+", "(a|aa)+", "(a|a?)+b?", "((a*)*)*", "^(a+)+$"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    # with a matcher that goes back these take 2 ** 5000 steps
    assert not SafePattern(pattern).matches("a" * 5000 + "!")


def test_states_that_are_remembered_are_bounded() -> None:
    pattern = SafePattern("(a|b)*a(a|b){12}")
    text = "".join("ab"[(7 * i * i + i // 3) % 2] for i in range(6000))
    assert pattern.matches(text) == (re.fullmatch(pattern.text, text) is not None)
    assert sum(map(len, pattern._cached.values())) <= MAX_CACHED + MAX_STEPS
    with pytest.raises(PatternError, match=str(MAX_STEPS)):
        SafePattern("a{1000}" * 3)


@pytest.mark.parametrize("nothing", ["()", "a{0}", "(|)", "(?i)"])
def test_nothing_again_and_again_is_nothing(nothing: str) -> None:
    # written out it would be nothing 10 ** 30 times
    pattern = nothing
    for _ in range(10):
        pattern = f"({pattern}){{1000}}"
    try:
        assert SafePattern(pattern).matches("")
    except PatternError as error:
        assert "steps" in str(error)


@pytest.mark.parametrize(
    "pattern", ["(a?){990}.*", r"(a?\b?){300}.*", ".*" * 900, r"\b[^" + "b-c" * 10_000 + "]*"]
)  # fmt: skip
def test_what_names_cost_has_a_limit(pattern: str) -> None:
    names = [f"{'a' * 240}{number}" for number in range(1000)]
    with pytest.raises(PatternError, match="costs more than 50000 steps"):
        matching(pattern, names, most_work=50_000)
    assert matching("a{240}[12]0*", names) == {names[1], names[2], *(names[n] for n in (10, 20, 100, 200))}
