"""Logs on remote file systems: all that fsspec knows by URL (docs/remote.md).

Used by `kafkalog.open("s3://backups/kafka/orders-0")` and `kafkalog.open_dirs("memory://data")`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Final

from kafkalog.errors import IllegalArgument, MissingPackage, ReadOnlyLog, StorageError
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.fileio import FileSystem
from kafkalog.util.remote_files import RemoteFileSystem

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::[A-Za-z][A-Za-z0-9+.-]*)*://")
_PASSWORD: Final = re.compile(r"(://[^/:@]*):[^/]*@")


def is_url(path: object) -> bool:
    """Return True for text such as `s3://bucket/path`."""
    return isinstance(path, str) and _URL.match(path) is not None


def without_password(url: str) -> str:
    """Return a URL as errors and reports may show it."""
    return _PASSWORD.sub(r"\1@", url)


def refuse_to_write(*paths: str) -> None:
    """Raise ReadOnlyLog for a URL."""
    for path in paths:
        if is_url(path):
            shown = without_password(path)
            raise ReadOnlyLog("a URL can be opened only for reading", path=shown, hint="open it with mode 'r'")


def refuse_urls(*paths: object) -> None:
    """Raise IllegalArgument for a URL where only directories and files of this machine are accepted."""
    for path in paths:
        if is_url(path):
            raise IllegalArgument(
                "a URL was given instead of a local file or directory", path=without_password(str(path)),
                hint="mount the store, or copy from it or to it with the store's own tool; docs/remote.md lists what "
                "accepts URLs",
            )  # fmt: skip


def locate(url: str, options: Mapping[str, object] | None = None) -> tuple[RemoteFileSystem, str]:
    """Return the file system of a URL and the path in it. `options` are those of the store: keys, endpoints.

    Raises MissingPackage, with the command that installs the package for such URLs; IllegalArgument for an unknown URL;
    StorageError if the store cannot be reached.
    """
    protocol = url.partition("://")[0].rpartition("::")[2].lower()
    try:
        url_to_fs = import_module("fsspec.core").url_to_fs
    except ModuleNotFoundError:
        raise MissingPackage("fsspec, which reads URLs, is not installed", hint="pip install 'kafkalog[fs]'") from None
    try:
        remote, path = url_to_fs(url, **(options or {}))
    except ImportError as error:
        raise MissingPackage(f"the package for {protocol}:// is not installed: {error}", hint=_hint(error)) from None
    except ValueError as error:
        shown, why = ascii(without_password(url)[:200]), without_password(str(error))
        raise IllegalArgument(f"{shown}: {why}", hint="use a URL that fsspec supports") from None
    except Exception as error:
        raise StorageError(f"cannot open the store of {protocol}://: {without_password(str(error))}") from error
    found = RemoteFileSystem(remote, protocol, is_rooted=str(path).startswith("/"))
    return found, found.path_of(path)


def _hint(error: ImportError) -> str:
    found = re.search(r"[Ii]nstall (\w+)", str(error))
    return f"pip install {found[1]}" if found else "see fsspec's list of file systems"


def view_of(url: str, options: Mapping[str, object] | None = None) -> LogView:
    """Open the partition directory at a URL for reading; errors as for `locate`, PartitionNotFound, NotAPartition."""
    fs, path = locate(url, options)
    return LogView(path, fs=fs)


def locate_directories(urls: Iterable[str]) -> tuple[FileSystem, list[str]]:
    """Return the file system of data directories and their paths; raise IllegalArgument if there are several."""
    all_urls = list(urls)
    local = [one for one in all_urls if not is_url(one)]
    if local:
        raise IllegalArgument("a local directory among URLs", path=local[0], hint="open it separately, or as file://")
    found = [locate(url) for url in all_urls]
    fs = found[0][0]
    if any(other.remote is not fs.remote for other, _ in found):
        raise IllegalArgument("the data directories are in several stores", hint="open each store separately")
    return fs, [path for _, path in found]
