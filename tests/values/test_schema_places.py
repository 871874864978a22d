"""Schema places with many names, long names and slow servers."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kafkalog import values
from kafkalog.decoders import decoder as record_decoder
from kafkalog.errors import IllegalArgument
from kafkalog.values.schemas import opener
from kafkalog.values.schemas.registry import SchemaRegistry
from kafkalog.values.schemas.source import Reference, Schema, referenced

ID = b'{"type": "fixed", "name": "a.Id", "size": 2}'
ROOT = b'{"type": "record", "name": "R", "fields": [{"name": "x", "type": "a.Id"}]}'


class Stored:
    """Schemas by id and by version."""

    def __init__(self, ids: dict[int, Schema], versions: dict[tuple[str, int], Schema]) -> None:
        self.ids, self.versions = ids, versions

    def by_id(self, number: int) -> Schema:
        return self.ids[number]

    def by_version(self, subject: str, version: int | None = None) -> Schema:
        assert version is not None
        return self.versions[subject, version]


def test_a_schema_that_is_used_by_two_names_has_both() -> None:
    root = {"properties": {"x": {"$ref": "c.json"}, "y": {"$ref": "common/b.json"}}}
    uses = (Reference("c.json", "c", 1), Reference("common/b.json", "b", 1))
    inner = Schema(b'{"properties": {"z": {"$ref": "b.json"}}}', "JSON", 3, (Reference("b.json", "b", 1),))
    source = Stored(
        {1: Schema(json.dumps(root).encode(), "JSON", 1, uses)},
        {("b", 1): Schema(b'{"type": "integer"}', "JSON", 2), ("c", 1): inner},
    )
    assert [name for name, _ in referenced(source, source.by_id(1))] == ["b.json", "c.json", "common/b.json"]
    kind = pa.struct([("x", pa.struct([("z", pa.int64())])), ("y", pa.int64())])
    assert values.decoder("json", schema=1, schemas=source).arrow_type == kind


def test_avro_defines_a_schema_of_two_names_once() -> None:
    uses = (Reference("a.Id", "id", 1), Reference("other", "id", 1))
    source = Stored({3: Schema(ROOT, id=3, references=uses)}, {("id", 1): Schema(ID)})
    row = b"\0\0\0\0\3ab"
    assert values.decoder("avro", schemas=source).decode(pa.array([row])).values.to_pylist() == [{"x": b"ab"}]
    pytest.importorskip("fastavro")
    assert record_decoder("avro", schemas=source)(row) == {"x": b"ab"}  # type: ignore[arg-type]


def test_references_within_references_are_an_error_at_some_depth() -> None:
    chain = {("s", n): Schema(b'"int"', id=n, references=(Reference("s", "s", n + 1),)) for n in range(900)}
    chain["s", 900] = Schema(b'"int"')
    source = Stored({0: chain["s", 0]}, chain)
    assert len(referenced(source, chain["s", 800])) == 100
    chain["s", 900] = Schema(b'"int"', references=(Reference("s", "s", 0),))
    with pytest.raises(IllegalArgument, match="references"):
        referenced(source, chain["s", 0])


def answering(data: bytes, pause_s: float = 0) -> Iterator[str]:
    """The address of a server that sends these bytes to every client, one at a time if there is a pause."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)

        def serve() -> None:
            while not stop.is_set():
                try:
                    client, _ = server.accept()
                except TimeoutError:
                    continue
                with client:
                    client.recv(1 << 16)
                    try:
                        for part in (data[i : i + 1] for i in range(len(data))) if pause_s else [data]:
                            client.sendall(part)
                            if stop.wait(pause_s):
                                return
                    except OSError:
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        stop.set()
        thread.join()


@pytest.fixture
def healthy() -> Iterator[str]:
    yield from answering(b'HTTP/1.1 200 OK\r\n\r\n{"schema": "\\"long\\"", "id": 1}')


@pytest.fixture
def dripping() -> Iterator[str]:
    yield from answering(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 60_000, pause_s=0.02)


def test_headers_that_come_byte_by_byte_are_given_up(dripping: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # each byte comes within the time-out; all of them would take 20 minutes
    monkeypatch.setattr(opener, "SLOWEST", 0.1)
    with pytest.raises(values.RegistryUnavailable, match="took too long"):
        SchemaRegistry(dripping, timeout_s=10).by_id(1)


def test_readers_fetch_and_cache_one_schema_at_once(healthy: str, tmp_path: Path) -> None:
    errors: list[Exception] = []
    start = threading.Barrier(6)

    def read() -> None:
        for n in range(20):
            start.wait()
            try:
                assert SchemaRegistry(healthy, cache=tmp_path).by_version(f"s{n}", 1).content == b'"long"'
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(list(tmp_path.iterdir())) == 20


@pytest.mark.parametrize("subject", ["x" * 150, "x" * 220, "注文" * 30])
def test_subjects_with_long_names_are_cached(healthy: str, tmp_path: Path, subject: str) -> None:
    assert SchemaRegistry(healthy, cache=tmp_path).by_version(subject, 1).content == b'"long"'
    SchemaRegistry(healthy, cache=tmp_path).by_version(subject + "y", 1)
    files = sorted(file.name for file in tmp_path.iterdir())
    assert len(files) == 2 and all(len(name.encode()) <= 255 for name in files)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes().replace(b"long", b"kept"))
    assert SchemaRegistry(healthy, cache=tmp_path).by_version(subject, 1).content == b'"kept"'
