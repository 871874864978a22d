"""Recorded frames of Kafka's protocol, and how what we read of them is compared with what Kafka's own classes read."""

import base64
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.server.wire.definitions import FieldPlan, StructPlan
from kafkalog.server.wire.header import response_header
from kafkalog.server.wire.reader import Frame as Bytes
from kafkalog.server.wire.reader import request_reader
from kafkalog.server.wire.versions import APIS
from kafkalog.server.wire.writer import Tree, response_writer
from tests.golden_cases import GOLDEN

SINCE_4_4 = {18: 5, 28: 6, 42: 3}
"""Newest versions of calls that the broker of the capture, 4.3.1, did not have."""
FILES = sorted((GOLDEN / "wire").glob("*.json.gz"))


def each_file(function: Any) -> Any:
    """Runs a test once for each recorded scenario."""
    if not FILES:
        return pytest.mark.skip(reason=f"no recorded frames in {GOLDEN / 'wire'}")(function)
    return pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".json.gz"))(function)


@dataclass(frozen=True)
class Frame:
    """One request, with the response to it where there was one."""

    scenario: str
    seq: int
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: bytearray
    response: bytearray | None
    request_decoded: Any
    response_decoded: Any
    note: str | None
    closed: bool

    def __str__(self) -> str:
        return f"{self.scenario} frame {self.seq}: {self.key} v{self.version} {self.note or ''}"

    @property
    def is_served(self) -> bool:
        """Return True if kafkalog and the recorded broker both have the call in this version."""
        is_newer = self.version >= SINCE_4_4.get(self.key, 99)
        return self.key in APIS and APIS[self.key].serves(self.version) and not is_newer

    @property
    def response_start(self) -> int:
        """Start of the response's body."""
        return len(response_header(self.key, self.version, 0))


def frames(path: Path) -> Iterator[Frame]:
    """The frames of a scenario, in the order in which the broker saw them."""
    with gzip.open(path) as file:
        scenario = json.load(file)
    for one in sorted(scenario["frames"], key=lambda frame: frame["seq"]):
        yield Frame(
            f"{scenario['client']}-{scenario['scenario']}", one["seq"], one["api"], one["version"], one["corr"],
            one.get("client"), bytearray.fromhex(one["request"]),
            None if one["response"] is None else bytearray.fromhex(one["response"]),
            one.get("request_decoded"), one.get("response_decoded"), one.get("note"), bool(one.get("closed")),
        )  # fmt: skip


def differences(plan: StructPlan, value: Any, decoded: Any, where: str = "") -> Iterator[str]:
    """Yield the places where a message read by kafkalog differs from Kafka's own classes."""
    fields = {field.name: field for field in (*plan.plain, *plan.tagged)}
    seen = set()
    for java_name, expected in decoded.items():
        name = _our_name(java_name, fields)
        if name is None:
            yield f"{where}: no field for {java_name}"
            continue
        seen.add(name)
        yield from _differences(fields[name], getattr(value, name), expected, f"{where}.{name}")
    for name in fields.keys() - seen:
        if fields[name].tag is None:
            yield f"{where}.{name} is not in what Kafka read"
        elif getattr(value, name) != fields[name].default:
            yield f"{where}.{name} was not sent and is {getattr(value, name)!r}"


def read_request(api_key: int, version: int, frame: Bytes, position: int) -> Any:
    """A request's body from a position of the frame, with kio's names."""
    return request_reader(api_key, version).read(frame, position)


def write_response(api_key: int, version: int, correlation_id: int, tree: Tree) -> bytes:
    """A response with its header, without the length."""
    return response_writer(api_key, version).write(tree, response_header(api_key, version, correlation_id))


def as_tree(value: Any) -> Any:
    """A message that was read, as what is written: dictionaries and lists."""
    if hasattr(value, "_fields"):
        return {name: as_tree(getattr(value, name)) for name in value._fields}
    return [as_tree(one) for one in value] if isinstance(value, tuple) else value


def _our_name(java_name: str, fields: dict[str, FieldPlan]) -> str | None:
    snake = re.sub("(?<=[a-z0-9])([A-Z])", lambda match: "_" + match[1].lower(), java_name).lower()
    names = ("records",) if java_name == "recordsSizeInBytes" else (snake, snake.removesuffix("_ms"))
    return next((name for name in names if name in fields), None)


def _differences(field: FieldPlan, value: Any, expected: Any, where: str) -> Iterator[str]:
    if field.is_array and value is not None and expected is not None:
        if len(value) != len(expected):
            yield f"{where}: {len(value)} elements, not {len(expected)}"
        item = field._replace(is_array=False)
        for index, (one, other) in enumerate(zip(value, expected, strict=False)):
            yield from _differences(item, one, other, f"{where}[{index}]")
    elif field.struct is not None and value is not None and expected is not None:
        yield from differences(field.struct, value, expected, where)
    elif _as_json(field, value) != (0 if field.kind == "records" and expected is None else expected):
        yield f"{where}: {value!r}, not {expected!r}"


def _as_json(field: FieldPlan, value: Any) -> Any:
    if field.kind == "records":
        return 0 if value is None else len(value)
    if field.kind == "uuid":
        return base64.urlsafe_b64encode((value or UUID(int=0)).bytes).decode().rstrip("=")
    if field.kind == "bytes" and value is not None:
        return base64.b64encode(value).decode()
    return value
