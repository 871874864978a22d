"""What `LogDirs` says of its topics and directories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Topic(NamedTuple):
    """A topic: its id (22 characters, None where nobody gave it one), partition numbers and own settings (text)."""

    name: str
    topic_id: str | None
    partitions: tuple[int, ...]
    settings: Mapping[str, str]


class Directory(NamedTuple):
    """A data directory: its path, how many partitions it has, its id, and why it is offline (None: it is not)."""

    path: str
    partitions: int
    directory_id: str | None = None
    offline_error: Exception | None = None
