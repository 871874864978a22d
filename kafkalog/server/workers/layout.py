"""The division of a server among workers: directories, ports, and node ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from kafkalog.config.keys import value_text
from kafkalog.errors import ConfigError
from kafkalog.server.net.endpoints import parse_endpoint
from kafkalog.server.node.topics import INTERNAL
from kafkalog.server.settings.config import ServerConfig

WORKERS: Final = "kafkalog.workers"
MAIN: Final = 0
"""Worker 0 is the main process: it has the coordinators, topics and settings."""
OF_MAIN: Final = INTERNAL | {"_schemas"}
"""Topics whose partitions are all in the main process, which writes them itself."""
_NOT_SHARED: Final = ("kafkalog.http.listener", WORKERS, "log.dirs", "log.dir", "cordoned.log.dirs", "node.id",
                      "broker.id")  # fmt: skip
_ADDRESSES: Final = ("listeners", "advertised.listeners")


def check_workers(config: ServerConfig, directories: Sequence[str]) -> int:
    """Return the number of workers. Raise ConfigError if the settings or the directories do not allow as many."""
    count: int = config[WORKERS]
    if count == 1:
        return count
    if len(directories) < count:
        raise ConfigError(
            f"{count} workers need at least {count} data directories, and {len(directories)} are given",
            hint="list as many in log.dirs: each worker has directories of its own, with the partitions that lie there",
        )
    for name in ("kafkalog.replicas", "cordoned.log.dirs"):
        if config[name]:
            raise ConfigError(f"{name} is not possible with several workers", hint=f"set {WORKERS}=1")
    return count


def directories_of(directories: Sequence[str], worker: int, count: int) -> list[str]:
    """Return the directories of a worker: every `count`-th one."""
    return list(directories[worker::count])


def settings_of(config: ServerConfig, worker: int, ports: Mapping[str, int] | None = None) -> dict[str, str]:
    """Return the settings of a worker: its ports are those of the main process plus its number, or free ones for 0.

    `ports` has the ports of its listeners once they are known.
    """
    given = {**config.given(), **config.ignored_values}
    settings = {name: value_text(value) for name, value in given.items() if name not in _NOT_SHARED}
    for name in _ADDRESSES:
        if config[name]:
            settings[name] = ",".join(_moved(text, worker, ports if name == "listeners" else None)
                                      for text in config[name])  # fmt: skip
    return settings


def _moved(text: str, worker: int, ports: Mapping[str, int] | None) -> str:
    one = parse_endpoint(text)
    port = ports[one.name] if ports and one.name in ports else one.port and one.port + worker
    if port > 0xFFFF:
        raise ConfigError(f"worker {worker} has no port for listener {text}", hint="use a smaller port, or port 0")
    return f"{text.strip().rpartition(':')[0]}:{port}"


def spread(topic: str, numbers: Iterable[int], counts: Mapping[int, int]) -> dict[int, list[int]]:
    """Return the new partitions of a topic by worker: each one goes to the worker with the fewest at that point.

    `counts` has the number of partitions of each worker that runs.
    """
    if topic in OF_MAIN:
        return {MAIN: list(numbers)}
    room = [(count, worker) for worker, count in counts.items()]
    heapify(room)
    found: dict[int, list[int]] = {}
    for number in numbers:
        count, worker = heappop(room)
        heappush(room, (count + 1, worker))
        found.setdefault(worker, []).append(number)
    return found
