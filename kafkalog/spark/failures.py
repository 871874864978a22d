"""Errors of Spark calls: their messages, and whether Spark's virtual machine is gone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kafkalog.errors import JobFailed

ENDED: Final = "Spark's virtual machine ended"
_NAMED: Final = re.compile(r"[A-Za-z_][\w.]*: ")
_OURS: Final = "kafkalog.errors."


def failed(error: Exception, what: str) -> Exception:
    """Return JobFailed, with the most informative line, for an error of Spark; any other error unchanged."""
    if not is_of_spark(error):
        return error
    if has_ended(error):
        return JobFailed(
            f"{what}: {ENDED}",
            hint="it may have had too little memory (spark.driver.memory), or was killed; -v shows its output",
        )
    text = java_message(error) or str(error)
    return JobFailed(f"{what}: {last_line(text)}", hint="-v shows Spark's log with the details")


def is_of_spark(error: BaseException) -> bool:
    """Return True for errors that a Spark call raises: Spark's own, those of the bridge to Java, lost connections."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError | ConnectionError)


def has_ended(error: BaseException) -> bool:
    """Return True for errors that a Spark call raises when its virtual machine is gone.

    Connection errors come only from later calls. A call in progress gets an error without Java's trace, which a running
    virtual machine would always include.
    """
    from py4j.protocol import Py4JError, Py4JNetworkError

    if type(error) is Py4JError:
        return str(error).startswith("An error occurred while calling") and "Trace:" not in str(error)
    return isinstance(error, ConnectionError | Py4JNetworkError)


def java_message(error: BaseException) -> str | None:
    """Return Java's message for an error that it raised, or ENDED if Java is gone; None for any other error."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return None
    with ignore_if_ended():
        return str(cause.getMessage() or cause.toString())
    return ENDED


@contextmanager
def ignore_if_ended() -> Iterator[None]:
    """Ignore errors of the block if Spark's virtual machine is gone."""
    try:
        yield
    except Exception as error:
        if not has_ended(error):
            raise


def last_line(text: str) -> str:
    """Return the line of a trace that names the error; with Python traces in it, that of the last one's error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    traces = [n for n, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    for line in lines[traces[-1] + 1 :] if traces else ():
        if _NAMED.match(line):
            return line.removeprefix(_OURS)
    return lines[0] if lines else "no reason was given"
