"""Finds the golden cases: what the real Kafka wrote, printed or returned, as a manifest.json lists it.

The capture is the directory named by KAFKALOG_GOLDEN, by default tests/data/golden. No test names a case:
a case is its kind and name, an entry of a vector file its position in it, so the same tests run on any other
capture. Where one lacks a vector or a kind of partition, the parametrised test is skipped with the reason.
"""

import functools
import gzip
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import memory

GOLDEN = Path(os.environ.get("KAFKALOG_GOLDEN") or Path(__file__).parent / "data" / "golden").resolve()
ROOM_BYTES = 256 << 20
"""What has to be free in memory for the archives: they are extracted to 50 MB."""
VECTORS = "vectors"
LOOSE = "(loose) "  # marks an expected file that lies beside the manifest, not in an archive

Vector = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Case:
    """One case of the manifest: a partition directory, a top level, or a vector file."""

    name: str
    kind: str
    what: str = ""
    archive: str = ""
    files: tuple[str, ...] = ()
    expected_archive: str = ""
    expected: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def id(self) -> str:
        """Kind and name: names repeat across kinds."""
        return f"{self.kind}:{self.name}"

    @property
    def topic(self) -> str:
        """The topic of a partition case."""
        return self.name.rpartition("-")[0]

    @property
    def root(self) -> Path:
        """The directory its archive was extracted to; a test that writes copies from it first."""
        return extracted(self.archive)

    @property
    def directory(self) -> Path:
        """The partition's own directory."""
        parents = {Path(name).parent for name in self.files}
        return self.root / min(parents, key=lambda p: len(p.parts))

    def path(self, name: str) -> Path:
        """The extracted file of one of `files`."""
        return self.root / name

    def files_with(self, suffix: str) -> list[str]:
        """Those of `files` that end in suffix, in order."""
        return sorted(name for name in self.files if name.endswith(suffix))

    def expected_path(self, name: str) -> Path:
        """The file of one of `expected`: extracted, or beside the manifest."""
        if name.startswith(LOOSE) or not self.expected_archive:
            return GOLDEN / name.removeprefix(LOOSE)
        return extracted(self.expected_archive) / name

    def expected_with(self, suffix: str) -> list[str]:
        """Those of `expected` that end in suffix, in order."""
        return sorted(name for name in self.expected if name.endswith(suffix))


@functools.cache
def manifest() -> dict[str, Any]:
    """The capture's manifest.json."""
    path = GOLDEN / "manifest.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: KAFKALOG_GOLDEN must name a directory that holds manifest.json")
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


@functools.cache
def version() -> tuple[int, int]:
    """The release of Kafka that made the capture: a test follows that one's rule where releases differ."""
    found = re.match(r"Apache Kafka (\d+)\.(\d+)\.", manifest()["made_by"])
    assert found is not None, "the manifest names no release"
    return int(found[1]), int(found[2])


@functools.cache
def cases(kind: str | None = None) -> list[Case]:
    """All cases of the manifest, or those of one kind, in its order."""
    known = ("name", "kind", "what", "archive", "expected_archive")
    found = [
        Case(
            **{key: row[key] for key in known if key in row},
            files=tuple(row.get("files", ())),
            expected=tuple(row.get("expected", ())),
            extra={k: v for k, v in row.items() if k not in (*known, "files", "expected")},
        )
        for row in manifest()["cases"]
    ]
    return [case for case in found if kind is None or case.kind == kind]


def partitions(kind: str) -> list[Case]:
    """The partition directories of one kind: "logdir", "crash" or "legacy" (or the manifest's full word).

    Only those whose archives lie in the capture.
    """
    listed = cases(kind if kind.endswith("-partition") else f"{kind}-partition")
    return [case for case in listed if _has(case.archive) and _has(case.expected_archive)]


def vector_document(name: str) -> dict[str, Any]:
    """A vector file whole: `cases`, perhaps `note` and others; {} where the capture has no such vector."""
    for case in cases(VECTORS):
        if case.name == name:
            document: dict[str, Any] = _load_json(GOLDEN / case.files[0])
            return document
    return {}


def vector(name: str, key: str = "cases") -> Vector:
    """The entries of a vector file as (id, entry); ids go by position: names repeat or are missing.

    key: another list of the file, such as "sanity".
    """
    entries = vector_document(name).get(key, [])
    prefix = "" if key == "cases" else f"{key}-"
    return [(f"{prefix}{position}", entry) for position, entry in enumerate(entries)]


def each_entry(
    name: str,
    key: str = "cases",
    argument: str = "entry",
    where: Callable[[dict[str, Any]], bool] | None = None,
) -> pytest.MarkDecorator:
    """Parametrises a test over a vector file's entries (those for which `where` holds)."""
    entries = [(id_, entry) for id_, entry in vector(name, key) if where is None or where(entry)]
    return _parametrize(argument, entries, f"no {key!r} of vector {name!r}")


def each_partition(
    *kinds: str, argument: str = "case", where: Callable[[Case], bool] | None = None
) -> pytest.MarkDecorator:
    """Parametrises a test over the partition directories of these kinds (those for which `where` holds)."""
    found = [case for kind in kinds for case in partitions(kind) if where is None or where(case)]
    return _parametrize(argument, [(case.id, case) for case in found], f"no partition of kind {', '.join(kinds)}")


def _parametrize(argument: str, values: Iterable[tuple[str, Any]], missing: str) -> pytest.MarkDecorator:
    params = [pytest.param(value, id=id_) for id_, value in values]
    if not params:
        reason = f"{missing} in the golden capture {GOLDEN.name!r}"
        params = [pytest.param(None, id="absent", marks=pytest.mark.skip(reason=reason))]
    return pytest.mark.parametrize(argument, params)


def _has(archive: str) -> bool:
    return not archive or (GOLDEN / archive).is_file()


@functools.cache
def extracted(archive: str) -> Path:
    """The directory this archive was extracted to, once per session; file times and holes are kept."""
    target = Path(_scratch().name) / archive.removesuffix(".tar.gz")
    target.mkdir(parents=True)
    unpack(GOLDEN / archive, target)
    return target


def unpack(archive: Path, target: Path) -> None:
    """All of a capture's archive; the first 3.11 releases of Python know no filters."""
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):
            tar.extractall(target, filter="data")
        else:
            tar.extractall(target)


@functools.cache
def _scratch() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(
        prefix="kafkalog-golden-", dir=memory.memory(ROOM_BYTES), ignore_cleanup_errors=True
    )


def close_scratch() -> None:
    """Removes what was extracted; called at the end of the session."""
    if _scratch.cache_info().currsize:
        _scratch().cleanup()
        _scratch.cache_clear()
        extracted.cache_clear()


@functools.cache
def _load_json(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
