"""Work in another thread, whose error the test looks at."""

import threading
from collections.abc import Callable


def in_a_thread(work: Callable[[], object]) -> BaseException | None:
    """The error of work in a separate thread, after its end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return errors[0] if errors else None
