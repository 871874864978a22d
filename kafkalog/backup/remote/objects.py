"""Objects below a URL: a marker, one manifest per backup, and one object per distinct file content."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final

from kafkalog.backup.copying import COPY_BYTES, Tell
from kafkalog.backup.manifest import MAX_BYTES, Manifest, StoredFile, encode_manifest, is_id, is_sum, parse_manifest
from kafkalog.backup.remote.encryption import SUFFIX, Encryption
from kafkalog.backup.remote.lease import MAX_BYTES as MAX_NOTE_BYTES
from kafkalog.backup.remote.lease import StoreLease
from kafkalog.errors import (
    CorruptBackup,
    DirectoryLocked,
    IllegalArgument,
    IllegalState,
    PartitionNotFound,
    StorageError,
)
from kafkalog.storage.remote import locate, without_password
from kafkalog.util.object_writes import write_object
from kafkalog.util.os_errors import os_errors
from kafkalog.util.remote_files import as_os_error, list_objects, parse_info

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

MARKER: Final = "kafkalog.objects"
_CONTENT: Final = b"kafkalog backups of objects, version 1\n"
_MANIFESTS: Final = "manifests"
_FILES: Final = "files"
_JSON: Final = ".json"
_PARTIAL: Final = ".partial"
_OTHER_BACKUP: Final = "use another backup: `kafkalog backup list` shows them"


class Discarded:
    """A sink that discards all bytes."""

    def write(self, data: bytes, /) -> int:
        """Return the number of bytes."""
        return len(data)


class StoredObjects:
    """The objects of backups below `url`. Threads: any; one at a time, with the lease, creates or deletes backups.

    MissingPackage, IllegalArgument, StorageError.
    """

    def __init__(self, url: str, encryption: Encryption, options: Mapping[str, object] | None = None) -> None:
        protocol, _, place = url.partition("://")
        if not place.strip("/"):
            raise IllegalArgument(
                "the URL has no path in the store", path=url, hint="give s3://BUCKET/PATH, or file:///PATH"
            )
        located = f"{protocol}://{place.rstrip('/')}"
        self.url = without_password(located)
        self._encryption = encryption
        found, path = locate(located, options)
        self._fs = found.remote
        self._root = found.remote_path(path)
        self._is_local = found.root in ("/file:", "/local:")
        self.local_path = os.path.realpath(self._root) if self._is_local else None
        self._lease: tuple[int, StoreLease] | None = None  # with its thread

    def url_of(self, name: str) -> str:
        """Return the URL of an object."""
        return f"{self.url}/{name}"

    # The lease

    @contextmanager
    def leased(self, doing: str) -> Iterator[None]:
        """Hold the store's lease for the block; a block inside another one of the same thread shares its lease.

        DirectoryLocked names the run that has it; PartitionNotFound if there is no store; StorageError.
        """
        if self._lease is not None and self._lease[0] == threading.get_ident():
            yield
            return
        self.check_exists()
        with StoreLease(self, doing) as lease:
            self._lease = threading.get_ident(), lease
            try:
                yield
            finally:
                self._lease = None

    def _check_lease(self, *, now: bool = False) -> None:
        if self._lease is not None:
            self._lease[1].check(now=now)

    def times(self) -> dict[str, int]:
        """Return the names of the objects beside the marker, with their times in ns (0 if the store has none)."""
        try:
            listed = list_objects(self._fs, self._root, detail=True, is_local=self._is_local)
        except Exception as error:
            raise self._failed(error, "list the objects", "") from error
        return {str(one["name"]).rstrip("/").rpartition("/")[2]: parse_info(one).mtime_ns for one in listed}

    def put_note(self, name: str, content: bytes) -> None:
        """Write a small object beside the marker. StorageError."""
        try:
            self._fs.pipe_file(self._path(name), content)
        except Exception as error:
            raise self._failed(error, "write", name) from error

    def note(self, name: str) -> bytes:
        """Return the first bytes of a small object, or nothing if it is gone. StorageError."""
        try:
            with self._fs.open(self._path(name), "rb") as source:
                return bytes(source.read(MAX_NOTE_BYTES))
        except FileNotFoundError:
            return b""
        except Exception as error:
            raise self._failed(error, "read", name) from error

    def remove_note(self, name: str) -> None:
        """Delete a small object, if it is there. StorageError."""
        self._remove(name)

    # Contents of the store

    def create(self) -> None:
        """Create the store if nothing is at the URL. IllegalArgument if something else is; StorageError."""
        names = self._names("")
        if MARKER in names:
            return
        if [name for name in names if not name.startswith(f"{MARKER}.")]:  # leftovers of a killed run
            raise IllegalArgument(
                "there is something other than a store of backups", path=self.url, hint="choose another URL"
            )
        self._write(MARKER, lambda target: target.write(_CONTENT))

    def ids(self) -> list[str]:
        """Return the ids of the backups, oldest first. PartitionNotFound if there is no store; StorageError."""
        self.check_exists()
        return sorted(self.all_manifest_names())

    def check_exists(self) -> None:
        """Raise PartitionNotFound if there is no store of backups; StorageError."""
        if MARKER not in self._names(""):
            raise PartitionNotFound(
                "no backups were created at this URL", path=self.url, hint="create one: `kafkalog backup`"
            )

    def manifest(self, which: str) -> Manifest:
        """Read a backup's manifest. CorruptBackup, IllegalArgument (it is encrypted, without identities)."""
        content = self.manifest_content(which)
        return parse_manifest(content, self.url_of(f"{_MANIFESTS}/{which}"))

    def manifest_content(self, which: str) -> bytes:
        """Return the bytes of a backup's manifest; errors as for `manifest`."""
        name = self.manifest_name(which)
        if name is None:
            raise CorruptBackup("the backup's manifest is missing", path=self.url, hint=_OTHER_BACKUP)
        return self.manifest_bytes(name)

    def manifest_name(self, which: str) -> str | None:
        """Return the name of the object with a backup's manifest, its newest one; None if there is none."""
        names = self.manifest_names(which)
        return self.newest(names) if names else None

    def manifest_names(self, which: str) -> list[str]:
        """Return the names of the objects with a backup's manifest. StorageError."""
        return self.all_manifest_names().get(which, [])

    def newest(self, names: list[str]) -> str:
        """Return the name of the newest one of a backup's manifests. Errors as for `manifest`."""
        return self._by_redactions(names)[-1][1] if len(names) > 1 else names[0]

    def manifests(self, but: Container[str] = ()) -> list[Manifest]:
        """Return the manifests of all backups except `but`, from one listing: no one deletes a backup meanwhile."""
        names = sorted(self.all_manifest_names().items())
        contents = [(which, self.manifest_bytes(self.newest(own))) for which, own in names if which not in but]
        return [parse_manifest(content, self.url_of(f"{_MANIFESTS}/{which}")) for which, content in contents]

    def manifest_bytes(self, name: str) -> bytes:
        """Return the content of the object with a manifest. Errors as for `manifest`."""
        url = self.url_of(f"{_MANIFESTS}/{name}")
        content = io.BytesIO()
        self._read(f"{_MANIFESTS}/{name}", _Bounded(content, MAX_BYTES, url))
        if sha256(content.getvalue()).hexdigest() not in name:
            raise CorruptBackup("the manifest differs from what was stored", path=url, hint=_OTHER_BACKUP)
        return content.getvalue()

    def all_manifest_names(self) -> dict[str, list[str]]:
        """Return the manifests' names by backup id: several per backup after a killed redaction."""
        found: dict[str, list[str]] = {}
        for name in sorted(self._names(_MANIFESTS)):
            which, _, rest = name.removesuffix(SUFFIX).removesuffix(_JSON).partition(".")
            if is_id(which) and is_sum(rest):
                found.setdefault(which, []).append(name)
        return found

    def _by_redactions(self, names: list[str]) -> list[tuple[int, str]]:
        """Return the names of a backup's manifests, the newest last, each with its number of redactions."""
        parsed = ((parse_manifest(self.manifest_bytes(name), self.url_of(name)), name) for name in names)
        return sorted((manifest.redactions, name) for manifest, name in parsed)

    def delete_superseded(self) -> None:
        """Delete the manifests that a killed redaction has replaced. Errors as for `manifest`; StorageError."""
        for names in self.all_manifest_names().values():
            if len(names) > 1:
                ordered = self._by_redactions(names)
                for redactions, name in ordered:
                    if redactions < ordered[-1][0]:
                        self._remove(f"{_MANIFESTS}/{name}")

    def sums(self, encrypted: bool | None = None) -> set[str]:
        """Return the SHA-256 sums of the stored contents, encrypted or plain: by default as this store writes them."""
        suffix = SUFFIX if self._is_sealed(encrypted) else ""
        names = (name.removesuffix(suffix) for name in self._names(_FILES) if name.endswith(suffix))
        return {name for name in names if is_sum(name)}

    def _is_sealed(self, encrypted: bool | None) -> bool:
        return self._encryption.encrypts if encrypted is None else encrypted

    def is_encrypted(self, which: str) -> bool:
        """Return True if a backup is encrypted. StorageError."""
        return (self.manifest_name(which) or "").endswith(SUFFIX)

    def check_can_read(self) -> None:
        """Raise IllegalArgument if this store encrypts and no identity could decrypt what it writes."""
        self._encryption.check_own()

    def check_can_replace(self, which: str) -> None:
        """Raise IllegalArgument for an encrypted backup if there are no recipients to encrypt its new content for."""
        if self.is_encrypted(which) and not self._encryption.encrypts:
            raise IllegalArgument(
                f"the backup {which} is encrypted, so its new content must be encrypted too", path=self.url,
                hint="give the public keys of all who may read it: --recipient KEY",
            )  # fmt: skip

    def url_of_content(self, checksum: str) -> str:
        """Return the URL of the object with a content. CorruptBackup if there is none; StorageError."""
        return self.url_of(self._find(checksum))

    # Backups

    def put(self, file: StoredFile, path: str, tell: Tell | None, encrypted: bool | None = None) -> None:
        """Upload the content of a file of a backup, which lies at the local `path`. StorageError.

        CorruptBackup if the content does not match its entry, for instance because someone changed it. `encrypted`
        defaults to the store's setting.
        """
        with os_errors("read", path):
            source = open(path, "rb")
        with source:
            reading = _Hashed(source, tell)
            self._write_sealed(
                f"{_FILES}/{file.sha256}", reading, lambda: reading.check(file, path), self._is_sealed(encrypted)
            )

    def put_manifest(self, manifest: Manifest) -> None:
        """Upload a backup's manifest, which completes the backup.

        IllegalState if another backup has its id, also one uploaded at the same moment: then at least one of the two is
        withdrawn. DirectoryLocked if the lease was lost; StorageError.
        """
        self._check_lease(now=True)
        taken = IllegalState(
            f"another backup has the id {manifest.id}: it was uploaded meanwhile", path=self.url, hint="create it again"
        )
        if manifest.id in self.all_manifest_names():
            raise taken
        own = self._put_manifest(manifest, self._encryption.encrypts)
        try:
            self._check_lease(now=True)
        except DirectoryLocked:  # the run was paused meanwhile: contents of this backup may have been deleted
            self._remove(f"{_MANIFESTS}/{own}")
            raise
        if self.all_manifest_names().get(manifest.id, [own]) != [own]:
            self._remove(f"{_MANIFESTS}/{own}")
            raise taken

    def replace_manifest(self, manifest: Manifest) -> None:
        """Upload the manifest of a redacted backup, all of whose contents are there, and delete its older ones.

        Errors as for `manifest`; DirectoryLocked if the lease was lost; StorageError.
        """
        self._check_lease(now=True)
        self._put_manifest(manifest, self.is_encrypted(manifest.id))
        self.delete_superseded()

    def _put_manifest(self, manifest: Manifest, encrypted: bool) -> str:
        """Upload a manifest; return the name of its object."""
        content = encode_manifest(manifest)
        name = f"{manifest.id}.{sha256(content).hexdigest()}{_JSON}"
        self._write_sealed(f"{_MANIFESTS}/{name}", io.BytesIO(content), lambda: None, encrypted)
        return f"{name}{SUFFIX}" if encrypted else name

    def get(self, file: StoredFile, target: SupportsWrite[bytes], tell: Tell | None) -> None:
        """Write the content of a file to `target`. CorruptBackup if it is missing or differs from what was stored."""
        name = self._find(file.sha256)
        writing = _Hashed(_Bounded(target, file.size, self.url_of(name)), tell)
        self._read(name, writing)
        writing.check(file, self.url_of(name))

    def delete(self, *ids: str) -> None:
        """Delete the manifests of backups: from then on these do not exist. StorageError.

        DirectoryLocked if the lease was lost.
        """
        found = self.all_manifest_names()
        for which in ids:
            self._check_lease()
            for name in found[which]:
                self._remove(f"{_MANIFESTS}/{name}")

    def delete_content(self, checksum: str) -> None:
        """Delete a content that no backup has. DirectoryLocked if the lease was lost; StorageError."""
        self._check_lease()
        for name in (checksum, checksum + SUFFIX):
            self._remove(f"{_FILES}/{name}")

    def all_sums(self) -> set[str]:
        """Return the SHA-256 sums of all stored contents, encrypted or not."""
        return {name for one in self._names(_FILES) if is_sum(name := one.removesuffix(SUFFIX))}

    def leftovers(self) -> list[str]:
        """Return the names of files that killed runs left in a directory. StorageError."""
        places = (_FILES, _MANIFESTS) if self._is_local else ()
        found = (f"{below}/{name}" for below in places for name in sorted(self._names(below)))
        return [name for name in found if name.endswith(_PARTIAL)]

    def delete_leftovers(self) -> None:
        """Delete files that killed runs left in a directory. StorageError."""
        for name in self.leftovers():
            self._remove(name)

    # Objects

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _names(self, below: str) -> set[str]:
        path = self._path(below)
        try:
            listed = list_objects(self._fs, path, detail=False, is_local=self._is_local)
        except FileNotFoundError:
            return set()
        except Exception as error:
            raise self._failed(error, "list the objects", below) from error
        return {str(one).rstrip("/").rpartition("/")[2] for one in listed if str(one).strip("/") != path.strip("/")}

    def _find(self, checksum: str) -> str:
        """Return the name of a content's object, in this store's form (encrypted or plain), else in the other one.

        The given keys may not decrypt the other form, and `put` does not replace it. CorruptBackup if there is neither;
        StorageError.
        """
        self._fs.invalidate_cache(self._path(_FILES))  # another process may have added it since the listing
        suffixes = (SUFFIX, "") if self._encryption.encrypts else ("", SUFFIX)
        for found in (f"{_FILES}/{checksum}{suffix}" for suffix in suffixes):
            try:
                self._fs.info(self._path(found))
            except FileNotFoundError:
                continue
            except Exception as error:
                raise self._failed(error, "read", found) from error
            return found
        url = self.url_of(f"{_FILES}/{checksum}")
        raise CorruptBackup("an object of the backup is missing", path=url, hint=_OTHER_BACKUP)

    def _read(self, name: str, target: Any) -> None:
        try:
            with self._fs.open(self._path(name), "rb") as source:
                if name.endswith(SUFFIX):
                    self._encryption.decrypt(source, target, self.url_of(name))
                    return
                while data := source.read(COPY_BYTES):
                    target.write(data)
        except (CorruptBackup, IllegalArgument, StorageError):
            raise
        except Exception as error:
            raise self._failed(error, "read", name) from error

    def _write_sealed(self, name: str, source: Any, check: Callable[[], object], encrypted: bool) -> None:
        """Write an object, encrypted or plain; `check` may raise before it becomes visible."""

        def fill(target: Any) -> None:
            if encrypted:
                self._encryption.encrypt(source, target)
            else:
                while data := source.read(COPY_BYTES):
                    target.write(data)
            check()

        self._write(f"{name}{SUFFIX}" if encrypted else name, fill)

    def _write(self, name: str, fill: Callable[[Any], object]) -> None:
        """Create an object; it becomes visible only when complete."""
        path = self._path(name)
        # another machine may write the same object now
        partial = f"{path}.{token_hex(8)}{_PARTIAL}" if self._is_local else None
        try:
            write_object(self._fs, path, fill, partial)
        except (CorruptBackup, StorageError):
            raise
        except Exception as error:
            raise self._failed(error, "write", name) from error

    def _remove(self, name: str) -> None:
        """Delete an object, if it is there."""
        try:
            self._fs.rm_file(self._path(name))
        except FileNotFoundError:
            pass
        except Exception as error:
            raise self._failed(error, "delete", name) from error

    def _failed(self, error: Exception, doing: str, name: str) -> StorageError:
        url = self.url_of(name)
        return StorageError.from_os(as_os_error(error, url), doing, path=url)


class _Hashed:
    """A file whose bytes are hashed as they are read or written."""

    def __init__(self, file: Any, tell: Tell | None) -> None:
        self._file = file
        self._tell = tell
        self._sums = sha256()
        self._size = 0

    def read(self, size: int = -1) -> bytes:
        return self._seen(self._file.read(size))

    def write(self, data: bytes) -> int:
        self._file.write(self._seen(data))
        return len(data)

    def flush(self) -> None:
        pass

    def _seen(self, data: bytes) -> bytes:
        self._sums.update(data)
        self._size += len(data)
        if self._tell is not None:
            self._tell(len(data))
        return data

    def check(self, file: StoredFile, path: str) -> None:
        if (self._size, self._sums.hexdigest()) != (file.size, file.sha256):
            raise CorruptBackup("the content differs from what was stored", path=path, hint=_OTHER_BACKUP)


class _Bounded:
    """A file to which at most `most` bytes may be written."""

    def __init__(self, file: Any, most: int, url: str) -> None:
        self._file = file
        self._left = most
        self._url = url

    def write(self, data: bytes) -> int:
        self._left -= len(data)
        if self._left < 0:
            raise CorruptBackup("the object is longer than what was stored", path=self._url, hint=_OTHER_BACKUP)
        return int(self._file.write(data))

    def flush(self) -> None:
        pass
