"""Sidecars of a log that is opened by itself: built in the background whenever it rolls."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from kafkalog.util.events import Event, add

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.sidecars.background import SidecarBuilder


def build_when_rolled(log: Log, builder: SidecarBuilder, task: str) -> None:
    """Build the missing sidecars of a log in the background now and whenever it rolls, until it is closed.

    The logs of a store, and those in mode "r", have no tasks of their own.
    """
    from kafkalog.sidecars.background import PERIOD_MS

    opened = log._opened
    tasks = None if opened is None else opened.tasks
    if opened is None or tasks is None:
        return
    alive, path = weakref.ref(log), opened.path
    is_waiting = False  # for another try; only the thread of the tasks sets it

    def build() -> None:
        nonlocal is_waiting
        owner = alive()
        if owner is None or owner.closed or owner._opened is None:
            return
        if not builder.run([owner._opened.log]) and not is_waiting:
            is_waiting = True
            tasks.schedule(task, build_again, PERIOD_MS)

    def build_again() -> None:
        nonlocal is_waiting
        is_waiting = False
        build()

    def rolled(event: Event) -> None:
        owner = alive()
        if owner is None or owner.closed:
            hook.remove()
        elif event.path == path:
            tasks.schedule(task, build)

    log._builders.append(builder)
    hook = add("roll", rolled)
    builder.at_stop = hook.remove
    tasks.schedule(task, build)
