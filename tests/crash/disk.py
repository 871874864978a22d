"""A disk that forgets: what lies in the page cache, what was synced, and what a power cut may leave of both.

`DiskFS` passes every call on to the real file system and keeps, beside it, for each file the content that was synced
and the writes since then, for each directory the names that were synced and the changes since then. `Disk.image` is
one of the states that a power cut may leave: all that was synced, and of the rest whatever its mode says.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import RLock
from typing import Any, NamedTuple

from tests.faults import FaultFS

Image = dict[str, bytes | None]
"""Relative path -> content; None for a directory."""

SECTOR, PAGE = 512, 4096


class Mode(NamedTuple):
    """Effect of a power cut on unsynced changes: `names` of directory changes, `data` of writes to files.

    names: "none", "all", "prefix" (of each directory's changes) or "any" of them
    data: "none", "all", "prefix" (of each file's writes), or "torn": each block of `grain` bytes as it was after some
    of the writes; "length" is none, but the files have their new lengths, with zeros
    """

    name: str
    names: str
    data: str
    grain: int = 0


MODES = (
    Mode("only what was synced", "none", "none"),
    Mode("names without data", "all", "none"),
    Mode("names and lengths without data", "all", "length"),
    Mode("data without names", "none", "all"),
    Mode("first changes, first writes", "prefix", "prefix"),
    Mode("some changes, first writes", "any", "prefix"),
    Mode("all changes, torn at sectors", "all", "torn", SECTOR),
    Mode("some changes, torn at pages", "any", "torn", PAGE),
)
EVERYTHING = Mode("all of it", "all", "all")


class Change(NamedTuple):
    """One write to a file: `data` at `position`; None as data sets the length to `position`."""

    position: int
    data: bytes | None


@dataclass(eq=False)
class FileNode:
    """A file: its synced content, and the changes since."""

    synced: bytes = b""
    pending: list[Change] = field(default_factory=list)
    lost: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        """All that is pending is on disk now; not what an earlier, failed sync gave up, which is lost for good."""
        if self.pending:  # else megabytes of an index would be copied
            self.synced = _applied(self.synced, self.pending)
        self.pending.clear()
        self.lost.clear()

    def sync_failed(self) -> None:
        """The system takes the pages for clean after a failed sync: the next one will not write them."""
        self.lost += self.pending
        self.pending.clear()

    def content(self, mode: Mode, rng: Random) -> bytes:
        """Return the content that a power cut leaves."""
        changes = [*self.lost, *self.pending]
        if mode.data == "none" or not changes:
            return self.synced
        if mode.data == "all":
            return _applied(self.synced, changes)
        if mode.data == "length":
            return self.synced.ljust(len(_applied(self.synced, changes)), b"\0")
        if mode.data == "prefix":
            return _applied(self.synced, changes[: rng.randint(0, len(changes))])
        kept = _torn(changes, mode.grain, rng)
        torn = _applied(self.synced, kept)
        return torn.ljust(len(_applied(self.synced, changes)), b"\0") if rng.random() < 0.5 else torn


class Entry(NamedTuple):
    """One change of a directory: `removed` goes, then `name` stands for `node`; either may be absent."""

    removed: str | None
    name: str | None
    node: Any


@dataclass(eq=False)
class DirNode:
    """A directory: the names as they are, as they were synced, and the changes between."""

    synced: dict[str, Any] = field(default_factory=dict)
    live: dict[str, Any] = field(default_factory=dict)
    pending: list[Entry] = field(default_factory=list)

    def change(self, removed: str | None, name: str | None, node: Any) -> None:
        entry = Entry(removed, name, node)
        _enter(self.live, entry)
        self.pending.append(entry)

    def sync(self) -> None:
        self.synced = dict(self.live)
        self.pending.clear()

    def names(self, mode: Mode, rng: Random) -> dict[str, Any]:
        """Return the names that a power cut leaves."""
        names = dict(self.synced)
        pending = self.pending
        kept = {
            "none": list,
            "all": lambda: pending,
            "prefix": lambda: pending[: rng.randint(0, len(pending))],
            "any": lambda: [entry for entry in pending if rng.random() < 0.5],
        }[mode.names]()
        for entry in kept:
            _enter(names, entry)
        return names


class Disk:
    """Synced and unsynced state of everything below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = os.path.realpath(root)
        self.top = _loaded(self.root)

    def find(self, path: str) -> Any:
        """The file or directory of that name as the system shows it; None outside the root or where there is none."""
        node: Any = self.top
        inside = os.path.relpath(os.path.realpath(path), self.root)
        for name in () if inside == "." else inside.split(os.sep):
            node = node.live.get(name) if isinstance(node, DirNode) else None
        return node

    def parent(self, path: str) -> tuple[DirNode, str]:
        """The directory that has a path's name, and the name."""
        folder, name = os.path.split(os.path.abspath(path))
        node = self.find(folder)
        assert isinstance(node, DirNode), f"{path} lies outside of the disk"
        return node, name

    def image(self, mode: Mode, rng: Random) -> Image:
        """One state that a power cut now may leave."""
        found: Image = {}
        _collect(self.top, "", mode, rng, found)
        return found


class DiskFS(FaultFS):
    """A FaultFS below `root` that keeps a `disk`; `on_change` is called after each call that changed it.

    Threads: one at a time notes what its call did, and is in `on_change`.
    """

    def __init__(self, root: Path) -> None:
        self.disk = Disk(root)
        self.on_change: Callable[[], object] = lambda: None
        self._nodes: dict[int, Any] = {}
        self._noting = RLock()
        super().__init__()

    def real(self, op: str) -> Callable[..., Any]:
        """The real call, with what it does to the disk noted behind it."""
        real, note = super().real(op), getattr(self, f"_after_{op}", None)
        if note is None:
            return real

        def call(*args: Any, **named: Any) -> Any:
            result = real(*args, **named)
            with self._noting:
                note(result, *args)
            return result

        return call

    def _check(self, op: str, path: str, write: Callable[[int], Any] | None = None) -> None:
        try:
            super()._check(op, path, write)
        except OSError:
            node = self.disk.find(path) if op in ("fsync", "fdatasync") else None
            if isinstance(node, FileNode):
                node.sync_failed()
            raise

    def _after_open(self, fd: int, path: Any, flags: int, *_: Any) -> None:
        node = self.disk.find(path)
        if node is None and flags & os.O_CREAT:
            folder, name = self.disk.parent(os.fspath(path))
            node = FileNode()
            folder.change(None, name, node)
            self._nodes[fd] = node
            self.on_change()
        self._nodes[fd] = node

    def _changed(self, fd: int, change: Change) -> None:
        node = self._nodes.get(fd)
        if isinstance(node, FileNode):
            node.pending.append(change)
            self.on_change()

    def _after_pwrite(self, written: int, fd: int, data: Any, position: int) -> None:
        self._changed(fd, Change(position, bytes(memoryview(data).cast("B")[:written])))

    def _after_ftruncate(self, _: None, fd: int, length: int) -> None:
        self._changed(fd, Change(length, None))

    def _after_posix_fallocate(self, _: None, fd: int, offset: int, length: int) -> None:
        node = self._nodes.get(fd)
        if isinstance(node, FileNode):
            size = len(_applied(node.synced, [*node.lost, *node.pending]))
            self._changed(fd, Change(max(size, offset + length), None))

    def _after_fsync(self, _: None, fd: int) -> None:
        node = self._nodes.get(fd)
        if node is not None:
            node.sync()
            self.on_change()

    _after_fdatasync = _after_fsync

    def _after_rename(self, _: None, source: Any, target: Any) -> None:
        folder, old = self.disk.parent(os.fspath(source))
        other, new = self.disk.parent(os.fspath(target))
        node = folder.live[old]
        if folder is other:
            folder.change(old, new, node)
        else:  # the new name first: a move between directories that is cut in two has both names, never none
            other.change(None, new, node)
            folder.change(old, None, None)
        self.on_change()

    def _after_link(self, _: None, source: Any, target: Any) -> None:
        folder, name = self.disk.parent(os.fspath(source))
        other, new = self.disk.parent(os.fspath(target))
        other.change(None, new, folder.live[name])
        self.on_change()

    def _after_unlink(self, _: None, path: Any) -> None:
        folder, name = self.disk.parent(os.fspath(path))
        folder.change(name, None, None)
        self.on_change()

    _after_rmdir = _after_unlink

    def _after_mkdir(self, _: None, path: Any, *__: Any) -> None:
        folder, name = self.disk.parent(os.fspath(path))
        folder.change(None, name, DirNode())
        self.on_change()


def write_image(image: Image, target: Path) -> Path:
    """Makes the files of an image below `target`, which it makes too."""
    target.mkdir(parents=True)
    for name, content in image.items():
        path = target / name
        if content is None:
            path.mkdir(exist_ok=True)
        else:
            _write_sparse(path, content)
    return target


def _write_sparse(path: Path, content: bytes) -> None:
    """Writes a file without the zeros at its end, of which an index that was made ahead has megabytes."""
    with path.open("wb") as file:
        file.write(content.rstrip(b"\0"))
        file.truncate(len(content))


def read_image(source: Path) -> Image:
    """All that lies below a directory."""
    found: Image = {}
    for path in sorted(source.rglob("*")):
        found[str(path.relative_to(source))] = None if path.is_dir() else path.read_bytes()
    return found


def _applied(content: bytes, changes: list[Change]) -> bytes:
    made = bytearray(content)
    for position, data in changes:
        if data is None:
            if position <= len(made):
                del made[position:]
            else:
                made += bytes(position - len(made))
        else:
            made += bytes(max(0, position - len(made)))
            made[position : position + len(data)] = data
    return bytes(made)


def _torn(changes: list[Change], grain: int, rng: Random) -> list[Change]:
    """Of some writes what a disk has that writes blocks of `grain` bytes, each as it was at some moment."""
    moments: dict[int, int] = {}
    kept = []
    for number, change in enumerate(changes):
        for piece in _pieces(change, grain):
            block = -1 if piece.data is None else piece.position // grain
            if block not in moments:
                moments[block] = len(changes) if rng.random() < 0.5 else rng.randint(0, len(changes))
            if number < moments[block]:
                kept.append(piece)
    return kept


def _pieces(change: Change, grain: int) -> list[Change]:
    """A write as the pieces that a disk with blocks of `grain` bytes writes one by one."""
    position, data = change
    if data is None:
        return [change]
    cuts = [0, *range(grain - position % grain, len(data), grain), len(data)]
    return [Change(position + a, data[a:b]) for a, b in zip(cuts, cuts[1:], strict=False) if a < b]


def _enter(names: dict[str, Any], entry: Entry) -> None:
    if entry.removed is not None:
        names.pop(entry.removed, None)
    if entry.name is not None:
        names[entry.name] = entry.node


def _loaded(path: str) -> DirNode:
    """A directory that lies there, all of it synced."""
    node = DirNode()
    for entry in os.scandir(path):
        if entry.is_dir():
            node.live[entry.name] = _loaded(entry.path)
        else:
            node.live[entry.name] = FileNode(Path(entry.path).read_bytes())
    node.synced = dict(node.live)
    return node


def _collect(node: DirNode, prefix: str, mode: Mode, rng: Random, found: Image) -> None:
    for name, child in sorted(node.names(mode, rng).items()):
        if isinstance(child, DirNode):
            found[prefix + name] = None
            _collect(child, f"{prefix}{name}/", mode, rng, found)
        else:
            found[prefix + name] = child.content(mode, rng)
