"""Rates over sampled windows and the throttle times above a limit, computed as by the reference's metrics."""

from __future__ import annotations

from typing import Final, NamedTuple

MAX_WAIT_MS: Final = 2**31 - 1
"""Longest throttle time that fits into an answer."""


class Windows(NamedTuple):
    """Number and length of the samples (`quota.window.num`, `quota.window.size.seconds`)."""

    samples: int = 11
    length_ms: int = 1000


class Rate:
    """The recorded values per second over the latest samples. Times are ms of one clock."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[tuple[int, float]] = []  # (begin, sum), the oldest first

    def record(self, value: float, now_ms: int) -> None:
        """Add a value to the current sample."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._windows.length_ms:
            samples[-1] = (samples[-1][0], samples[-1][1] + value)
        else:
            samples.append((now_ms, value))
            del samples[: -self._windows.samples]

    def window_ms(self, now_ms: int) -> int:
        """Return the time that the rate covers, at least that of all samples but one; missing samples are empty."""
        self._purge(now_ms)
        length_ms = self._windows.length_ms
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0
        missing = self._windows.samples - 1 - elapsed_ms // length_ms
        return max(elapsed_ms + max(missing, 0) * length_ms, length_ms)

    def per_second(self, now_ms: int) -> float:
        """Return the rate."""
        window_ms = self.window_ms(now_ms)
        return sum(value for _, value in self._samples) * 1000 / window_ms

    def subtract(self, value: float) -> None:
        """Subtract a value from the last sample, to undo `record`."""
        begin, total = self._samples[-1]
        self._samples[-1] = (begin, total - value)

    def _purge(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._windows.samples * self._windows.length_ms
        samples = self._samples
        while samples and samples[0][0] <= oldest_ms:
            del samples[0]

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time until the rate falls to the limit without further values; 0 if it is not above."""
        rate = self.per_second(now_ms)
        if rate <= limit:
            return 0
        return min(round((rate - limit) / limit * self.window_ms(now_ms)), MAX_WAIT_MS)


class TokenBucket:
    """Token bucket of `limit` tokens per second, with a burst of all windows together (KIP-599). Times as in `Rate`."""

    __slots__ = ("_full", "_tokens", "_updated_ms", "limit")

    def __init__(self, limit: float, windows: Windows, now_ms: int) -> None:
        self.limit = limit
        self._full = limit * windows.samples * windows.length_ms / 1000
        self._tokens = self._full
        self._updated_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Return the time until tokens may be taken; 0 if they may now."""
        earned = (now_ms - self._updated_ms) * self.limit / 1000
        self._tokens = min(self._tokens + earned, self._full)
        self._updated_ms = now_ms
        return min(max(round(-self._tokens / self.limit * 1000), 0), MAX_WAIT_MS)

    def take(self, count: float) -> None:
        """Take tokens, possibly more than available."""
        self._tokens -= count
