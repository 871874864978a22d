"""Release of memory that the traceback of an error keeps."""

from __future__ import annotations

import traceback


def clear_frames(error: BaseException) -> None:
    """Clear the variables of all frames in the tracebacks of `error` and its causes; its text is unchanged.

    An error keeps the frames of its traceback, and these keep their buffers as long as the error exists.
    """
    pending: list[BaseException] = [error]
    seen: set[int] = set()
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            traceback.clear_frames(one.__traceback__)
            pending += [other for other in (one.__cause__, one.__context__) if other is not None]
