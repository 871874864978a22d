"""Look-ups by key in a closed segment with a key index, and the making of that index."""

from collections.abc import Iterator
from contextlib import contextmanager

import kafkalog
from asv_benchmarks.hot_paths.path import Place, Work, hot_path

KEYS = 2_000


def _key(number: int) -> bytes:
    return b"user-%011d" % number


@contextmanager
def _log(place: Place) -> Iterator[kafkalog.Log]:
    """Give a log whose keys are all in one closed segment."""
    with kafkalog.open(place.directory / "hot-0", "a") as log:
        for start in range(0, KEYS, 100):
            log.append([(_key(number * 7919 % KEYS), b"v" * 70) for number in range(start, start + 100)])
        log.roll()
        log.build_key_index()
        yield log


@hot_path("keys", "build a key index", item="record")
def build(place: Place) -> Iterator[Work]:
    with _log(place) as log:
        yield Work(lambda: log.build_key_index(rebuild=True)[0].records)


@hot_path("keys", "get by key", item="look-up")
def get(place: Place) -> Iterator[Work]:
    with _log(place) as log:
        keys = [_key(number) for number in range(0, KEYS, 13)]
        yield Work(lambda: sum(log.get(key) is not None for key in keys))


@hot_path("keys", "get many keys", item="look-up")
def get_many(place: Place) -> Iterator[Work]:
    with _log(place) as log:
        keys = [_key(number) for number in range(0, KEYS, 3)]
        yield Work(lambda: sum(record is not None for record in log.get_many(keys)))


@hot_path("keys", "get a table of many keys", item="look-up")
def get_table(place: Place) -> Iterator[Work]:
    import pyarrow

    with _log(place) as log:
        keys = pyarrow.array([_key(number) for number in range(0, KEYS, 3)], pyarrow.binary())
        yield Work(lambda: pyarrow.table(log.get_table(keys, ["offset", "timestamp", "key", "value"])).num_rows)
