"""Small ranges put together."""

from hypothesis import given
from hypothesis import strategies as st

from kafkalog.exchange.ranges import OffsetRange
from kafkalog.spark.ranges import BUNDLE_BYTES, FEW, TINY_BYTES, bundled


@given(st.lists(st.integers(0, 2 * TINY_BYTES) | st.integers(0, 2 * BUNDLE_BYTES), max_size=60))
def test_every_range_once_in_order_and_no_task_with_too_much(sizes: list[int]) -> None:
    ranges = [OffsetRange("t", n, "d", 0, 1 + size) for n, size in enumerate(sizes)]
    bundles = bundled(ranges, lambda one: len(one) - 1)
    assert [one for bundle in bundles for one in bundle] == ranges
    assert all(bundles)
    most = TINY_BYTES if len(ranges) <= FEW else BUNDLE_BYTES
    for bundle, after in zip(bundles, bundles[1:], strict=False):
        assert len(bundle) == 1 or sum(sizes[one.partition] for one in bundle) <= most
        assert sum(sizes[one.partition] for one in (*bundle, after[0])) > most
