"""What the traceback of an error keeps in memory."""

from __future__ import annotations

import traceback


def clear_frames(error: BaseException) -> None:
    """Drop the variables of all functions that ended with `error`, or with what it came of. Its text stays whole.

    An error keeps the frames that it came through, and they keep their buffers for as long as the error is held.
    """
    left: list[BaseException] = [error]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            left += [other for other in (one.__cause__, one.__context__) if other is not None]
