"""The lock of a log: what `threading.Lock` promises."""

import signal
import threading

import pytest

from kafkalog._core.log.log_lock import LogLock


def test_one_thread_at_a_time() -> None:
    lock = LogLock()
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(2000):
            with lock:
                inside += 1
                most = max(most, inside)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (inside, most) == (0, 1) and not lock.locked()


def test_a_thread_waits_until_it_is_given_back() -> None:
    lock = LogLock()
    had: list[bool] = []
    assert lock.acquire() and lock.locked()
    thread = threading.Thread(target=lambda: had.append(lock.acquire()))
    thread.start()
    assert not lock.acquire(blocking=False) and had == []
    lock.release()
    thread.join()
    assert had == [True] and lock.locked()


def test_it_is_given_back_after_an_error_and_only_when_held() -> None:
    lock = LogLock()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert not lock.locked()
    with pytest.raises(RuntimeError, match="unlocked"):
        lock.release()
    assert lock.acquire(blocking=False) and lock.locked()


def test_a_signal_ends_a_wait() -> None:
    lock = LogLock()
    lock.acquire()
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.1, lambda: signal.pthread_kill(main, signal.SIGINT)).start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            lock.acquire()
    finally:
        signal.signal(signal.SIGINT, before)
    assert lock.locked()
    lock.release()
    assert lock.acquire(blocking=False)
