"""The estimate of what a codec saves."""

import pytest

from kafkalog.log.accumulator import MARGIN, RatioEstimate


def test_before_anything_was_seen() -> None:
    """REC-47: the margin alone."""
    estimate = RatioEstimate()
    assert estimate.ratio == 1.0 and estimate.plain_limit(61 + 10_500) == 61 + int(10_500 / MARGIN)
    assert estimate.plain_limit(61) == estimate.plain_limit(0) == 61


def test_better_is_believed_slowly_and_worse_at_once() -> None:
    estimate = RatioEstimate()
    seen = []
    for _ in range(30):
        estimate.observe(10_061, 2_061)
        seen.append(estimate.ratio)
    assert seen == sorted(seen, reverse=True) and seen[0] > 0.5 and seen[-1] == pytest.approx(0.2, abs=0.01)
    assert estimate.plain_limit(16_384) > 70_000
    estimate.observe(10_061, 11_061)
    assert estimate.ratio == 1.1 and estimate.plain_limit(16_384) < 16_384


def test_it_never_says_nothing() -> None:
    estimate = RatioEstimate()
    for plain, packed in ((61, 61), (61, 100), (0, 0)):
        estimate.observe(plain, packed)
    assert estimate.ratio == 1.0
    for _ in range(200):
        estimate.observe(1_000_061, 61)
    assert 0 < estimate.ratio <= 1 / 32
    assert estimate.plain_limit(61) == estimate.plain_limit(0) == 61
    estimate.observe(62, 63)
    assert estimate.ratio == 2.0
