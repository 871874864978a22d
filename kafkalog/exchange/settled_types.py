"""Documents of an export's manifest that settle its typed columns."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog.storage.names import validate_topic

if TYPE_CHECKING:
    from kafkalog.log.settled import Settled

_BYTES: Final = "base64"
_OPTIONS: Final = {"schema": (str, bytes), "strict": (bool,), "message": (str,), "indexes": (list,)}
"""Types of the options that settle columns."""


def types_document(topic: str, settled: Settled) -> dict[str, Any]:
    """Return the line of a manifest.

    >>> types_document("orders", {"value": {"schema": b"?"}})
    {'types': 'orders', 'value': {'schema': {'base64': 'Pw=='}}}
    """
    return {"types": topic, **{root: {n: _stored(v) for n, v in options.items()} for root, options in settled.items()}}


def parsed_types(document: Mapping[str, Any]) -> tuple[str, Settled]:
    """Return the topic and what settles its columns; raise ValueError, TypeError or LookupError for another line.

    >>> parsed_types({"types": "orders", "value": {"schema": {"base64": "Pw=="}}})
    ('orders', {'value': {'schema': b'?'}})
    """
    found: Settled = {}
    for root, options in document.items():
        if root == "types":
            continue
        if root not in ("key", "value") or not isinstance(options, dict):
            raise ValueError(f"there is no column {root!r}")
        found[root] = {}
        for name, value in options.items():
            if isinstance(value, dict):
                value = base64.b64decode(value[_BYTES], validate=True)
            if name not in _OPTIONS or not isinstance(value, _OPTIONS[name]):
                raise ValueError(f"{name} of {root} is {value!r:.60}")
            if name == "schema" and isinstance(value, str):
                json.loads(value)  # a decoder would take other text for a path
            found[root][name] = value
    return validate_topic(document["types"]), found


def _stored(value: Any) -> Any:
    return {_BYTES: base64.b64encode(value).decode()} if isinstance(value, bytes) else value
