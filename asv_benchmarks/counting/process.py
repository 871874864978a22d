"""The process under callgrind: `process.py METER PROFILE SCRATCH NAME...` makes all bodies, then counts each in turn.

Counting starts once all bodies are built and warm: imports, data and the first calls of each function cost no time
then. Each round of a body is a dump of its own, in the order in which `report.json` in SCRATCH has the names.
"""

import contextlib
import gc
import json
import sys
from importlib import import_module
from pathlib import Path

from asv_benchmarks.counting.meter import Meter
from asv_benchmarks.hot_paths import NOUNS
from asv_benchmarks.hot_paths.path import PATHS, Work, made

WARM_ROUNDS = 4
ROUNDS = 3
EMPTY = "nothing"
REPORT = "report.json"


def _stop_the_clock() -> None:
    """Keep readers from listing their directory again after a time, which under callgrind would be always."""
    from kafkalog.storage.readonly import watch as view_watch

    for name, value in (("LISTING_MS", 1 << 62), ("FRESH_MS", 0)):
        if hasattr(view_watch, name):
            setattr(view_watch, name, value)


def _read_paths() -> None:
    """Read each noun's file; an older commit may lack a module that one of them imports, and has the other paths."""
    for noun in NOUNS:
        with contextlib.suppress(ImportError):
            import_module(f"asv_benchmarks.hot_paths.{noun}")


def main(library: str, profile: str, scratch: str, names: list[str]) -> None:
    """Count the named paths; a path whose body cannot be made is reported with the reason."""
    meter = Meter(Path(library))
    _stop_the_clock()
    _read_paths()
    missing: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        bodies: dict[str, Work] = {EMPTY: Work(lambda: 1)}
        for number, name in enumerate(names):
            try:
                place = Path(scratch) / f"{number:03}"
                bodies[name] = stack.enter_context(made(PATHS[name], full=profile == "full", directory=place))
                for _ in range(WARM_ROUNDS):
                    bodies[name]()
            except Exception as error:  # an older commit lacks what a newer one has
                missing[name] = f"{type(error).__name__}: {error}"
                bodies.pop(name, None)
        items = _counted(bodies, meter)
    (Path(scratch) / REPORT).write_text(json.dumps({"names": list(bodies), "items": items, "missing": missing}))


def _counted(bodies: dict[str, Work], meter: Meter) -> dict[str, int]:
    items = {}
    gc.collect()
    gc.freeze()
    gc.disable()
    meter.start()
    for name, work in bodies.items():
        once, prepare, zero, dump = work.once, work.prepare, meter.zero, meter.dump
        for number in range(1 + ROUNDS):  # the first is forgotten: valgrind and the program begin something in it
            if prepare is not None:
                prepare()
            zero()
            done = once()
            if number:
                dump()
        items[name] = done
    meter.stop()
    return items


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
