"""A set that keeps nothing alive."""

import gc
import os
import threading

from kafkalog.util.weak_registry import WeakRegistry


class Thing:
    """Something that can be referred to weakly."""


def test_what_is_dropped_is_gone() -> None:
    living: WeakRegistry[Thing] = WeakRegistry()
    one, two = Thing(), Thing()
    living.add(one)
    living.add(two)
    living.add(two)
    assert set(living.all()) == {one, two}
    del two
    gc.collect()
    assert living.all() == [one]


def test_objects_may_come_while_it_is_looked_at() -> None:
    living: WeakRegistry[Thing] = WeakRegistry()
    kept: list[Thing] = []
    stop = threading.Event()

    def adds() -> None:
        while not stop.is_set() and len(kept) < 20_000:
            kept.append(Thing())
            living.add(kept[-1])

    thread = threading.Thread(target=adds)
    thread.start()
    for _ in range(200):
        assert len(living.all()) <= 20_000
    stop.set()
    thread.join()
    assert len(living.all()) == len(kept)


def test_a_forked_child_does_not_wait_for_a_thread_that_it_has_not() -> None:
    living: WeakRegistry[Thing] = WeakRegistry()
    held, done = threading.Event(), threading.Event()

    def holds() -> None:
        with living._lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=holds)
    thread.start()
    held.wait(30)
    child = os.fork()
    if child == 0:
        one = Thing()
        living.add(one)
        os._exit(0 if living.all() == [one] else 1)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
