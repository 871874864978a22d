"""Description of a tiered store, and of the keys that open its segments: a URL, or a JSON file.

    {"store": "s3://bucket", "prefix": "kafka/", "metadata": ["/backup/broker-2"],
     "keys": {"key1": "key1.pem"}, "options": {"endpoint_url": "https://..."}}

Only `store` is required. Paths are relative to the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.storage.remote import is_url
from kafkalog.util.fileio import OS
from kafkalog.util.keywords import closest_match

_MOST_BYTES: Final = 1 << 20
_FIELDS: Final = ("store", "prefix", "metadata", "keys", "options")


class Description(NamedTuple):
    """A tiered store: its URL, and what is needed to read it.

    store: URL of the bucket or directory. prefix: the broker's `key.prefix`, text before each object's name. metadata:
    data directories with `__remote_log_metadata`; none for those of the partitions that are read. keys: paths of PEM
    files with RSA private keys, by the id of the key pair. options: those of the store for fsspec.
    """

    store: str
    prefix: str = ""
    metadata: tuple[str, ...] = ()
    keys: Mapping[str, str] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})


def read_description(text: str | os.PathLike[str]) -> Description:
    """Return the description that `text` gives: the URL of a store, or the path of a JSON file.

    Raises IllegalArgument for a file with other content, StorageError for one that cannot be read.
    """
    if is_url(text):
        return Description(str(text))
    path = os.path.abspath(text)
    try:
        content = OS.read_file(path, _MOST_BYTES)
    except OSError as error:
        raise StorageError.from_os(
            error, "read the description of a tiered store", path=path, hint="give the URL of a store, or a JSON file"
        ) from error
    try:
        return _parse(json.loads(content), os.path.dirname(path))
    except (ValueError, RecursionError) as error:
        raise IllegalArgument(
            f"this is no description of a tiered store: {error}", path=path,
            hint='it is a JSON object such as {"store": "s3://bucket", "prefix": "kafka/"}',
        ) from None  # fmt: skip


def _parse(document: object, directory: str) -> Description:
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    for name in document:
        if name not in _FIELDS:
            nearest = closest_match(name, _FIELDS)
            raise ValueError(f"there is no field {name!r}" + (f"; did you mean {nearest}?" if nearest else ""))
    store, prefix = document.get("store"), document.get("prefix", "")
    metadata, keys, options = document.get("metadata", []), document.get("keys", {}), document.get("options", {})
    if not is_url(store):
        raise ValueError("store is not a URL")
    if not isinstance(prefix, str):
        raise ValueError("prefix is not text")
    if not isinstance(metadata, list) or not all(isinstance(one, str) and one for one in metadata):
        raise ValueError("metadata is not a list of directories")
    if not isinstance(keys, dict) or not all(isinstance(one, str) for one in keys.values()):
        raise ValueError("keys is not an object of paths by key id")
    if not isinstance(options, dict):
        raise ValueError("options is not an object")
    places = tuple(one if is_url(one) else os.path.join(directory, one) for one in metadata)
    files = {name: os.path.join(directory, path) for name, path in keys.items()}
    return Description(str(store), prefix, places, files, options)
