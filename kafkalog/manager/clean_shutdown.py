"""The broker epoch in the clean-shutdown marker of a data directory (CKPT-7, MGR-28)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Final

from kafkalog.errors import StorageError
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.util.fileio import OS, FileSystem

UNKNOWN_EPOCH: Final = -1
MAX_FILE_BYTES: Final = 1 << 20


def read_broker_epoch(directory: str, fs: FileSystem = OS) -> int | None:
    """Return the epoch of the broker that stopped cleanly; -1 if the marker has none, None without a marker.

    Any marker means a clean stop, whatever its content: an empty one is that of an old broker. StorageError.
    """
    path = os.path.join(directory, CLEAN_SHUTDOWN_FILE)
    try:
        with fs.open_file(path, "r") as file:
            content = file.pread(MAX_FILE_BYTES, 0)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.from_os(error, "read the clean-shutdown marker", path=path) from error
    return parse_broker_epoch(content)


def parse_broker_epoch(content: bytes) -> int:
    """Return the epoch in a marker's content, also as text and with any version; -1 if there is none."""
    try:
        document = json.loads(content)
        epoch = -1 if isinstance(document["brokerEpoch"], bool) else int(document["brokerEpoch"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return UNKNOWN_EPOCH
    return epoch if 0 <= epoch < 2**63 else UNKNOWN_EPOCH


def agreed_epoch(epochs: Iterable[int | None]) -> int:
    """Return the epoch that all directories' markers have; -1 if they differ, or one has none (MGR-28)."""
    found = set(epochs)
    epoch = found.pop() if len(found) == 1 else None
    return UNKNOWN_EPOCH if epoch is None else epoch
