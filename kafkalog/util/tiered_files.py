"""Segments that a broker copied to remote storage (KIP-405), as a partition directory.

Two layouts are supported. Kafka's own file store:

    <storage>/<topic>-<partition>-<topic id>/<20 digits>-<segment id>.log  .index  .timeindex  .txnindex

and that of Aiven's plugin for object stores, with all indexes in one file, and a manifest written last:

    <prefix><topic>-<topic id>/<partition>/<20 digits>-<segment id>.log  .indexes  .rsm-manifest

After a repeated copy, a segment may exist under two ids: the last one written counts. A segment without its manifest is
being copied or was abandoned. Chunks that the plugin compressed or encrypted cannot be read.
"""

from __future__ import annotations

import errno
import json
import os
import re
from typing import Any, Final, NamedTuple

from kafkalog.util.remote_files import RemoteFileSystem, RemoteStatus

_FILE: Final = re.compile(r"(?P<base>[0-9]{20})-(?P<id>[A-Za-z0-9_-]{22})(?P<suffix>\.[a-z_-]+)")
_OWN: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,10})-(?P<id>[A-Za-z0-9_-]{22})")
_PLUGIN: Final = re.compile(r"(?P<topic>.+)-(?P<id>[A-Za-z0-9_-]{22})")
_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")
MANIFEST: Final = ".rsm-manifest"
_EPOCHS: Final = ".leader_epoch_checkpoint"
_EPOCH_FILE: Final = "leader-epoch-checkpoint"
_MOST_MANIFEST_BYTES: Final = 16 << 20


class TieredPlace(NamedTuple):
    """Directory of a partition's segments, and the partition in its name."""

    path: str
    topic: str
    partition: int
    has_manifests: bool


def tiered_place(path: str) -> TieredPlace | None:
    """Parse the path of a directory; return None if it is not that of a partition in remote storage."""
    parent, name = os.path.split(path.rstrip("/"))
    if name.isdecimal() and len(name) <= 10:
        found = _PLUGIN.fullmatch(os.path.basename(parent))
        return None if found is None else TieredPlace(path, found["topic"], int(name), True)
    found = _OWN.fullmatch(name)
    return None if found is None else TieredPlace(path, found["topic"], int(found["partition"]), False)


class TieredFileSystem(RemoteFileSystem):
    """The store with an additional directory, `path`: `<place>/<topic>-<partition>`, with the segments of a place."""

    has_overlaps = True

    def __init__(self, remote: Any, protocol: str, place: TieredPlace) -> None:
        super().__init__(remote, protocol)
        self._place = place
        self.path = os.path.join(place.path, f"{place.topic}-{place.partition}")
        self._names: dict[str, str] = {}
        self._checked: set[str] = set()

    def remote_path(self, path: str) -> str:
        """Return the path in the store; for `path`, the path of its place."""
        text = path.rstrip("/")
        if text == self.path:
            return super().remote_path(self._place.path)
        parent, name = os.path.split(text)
        if parent == self.path:
            if name not in self._names:
                self.found_in(self.path)
            return super().remote_path(os.path.join(self._place.path, self._names.get(name, name)))
        return super().remote_path(path)

    def found_in(self, path: str) -> dict[str, RemoteStatus]:
        """Return the entries of a directory; in `path`, segments have their names of a log directory."""
        if path.rstrip("/") != self.path:
            return super().found_in(path)
        listed = super().found_in(self._place.path)
        segments: dict[str, list[tuple[int, str]]] = {}
        for name, found in listed.items():
            match = _FILE.fullmatch(name)
            if match is not None and match["suffix"] == ".log":
                stem = f"{match['base']}-{match['id']}"
                if not self._place.has_manifests or stem + MANIFEST in listed:
                    segments.setdefault(match["base"], []).append((found.mtime_ns, stem))
        names: dict[str, str] = {}
        for base, several in sorted(segments.items()):
            stem = max(several)[1]
            if self._place.has_manifests:
                self._check(stem + MANIFEST)
            names |= {base + suffix: stem + suffix for suffix in _SUFFIXES if stem + suffix in listed}
            if stem + _EPOCHS in listed:
                names[_EPOCH_FILE] = stem + _EPOCHS  # that of the last segment includes all earlier epochs
        self._names = names
        return {name: listed[at] for name, at in names.items()}

    def _check(self, name: str) -> None:
        """Raise OSError for a segment that was stored compressed or encrypted, or whose manifest cannot be read."""
        if name in self._checked:
            return
        number = self._open(os.path.join(self._place.path, name), os.O_RDONLY)
        try:
            size = self._fstat(number).st_size
            document = json.loads(self._pread(number, min(size, _MOST_MANIFEST_BYTES), 0))
            changed = [word for word in ("compression", "encryption") if document.get(word)]
        except (ValueError, AttributeError, RecursionError) as error:
            raise OSError(errno.EINVAL, f"the segment's manifest {name} cannot be read: {error}") from None
        finally:
            self._close(number)
        if changed:
            raise OSError(errno.EINVAL, f"segments stored with {' and '.join(changed)} cannot be read")
        self._checked.add(name)
