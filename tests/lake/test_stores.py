"""Tables in an object store and in a catalog by name: the same rows, each once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import kafkalog
from kafkalog.errors import StorageError
from kafkalog.lake.sync import sync_topic
from tests.commands import kafkalog as command
from tests.commands import ok
from tests.lake.tables import FORMATS, closes_itself
from tests.remote.s3 import s3_server
from tests.spark import killed_sync

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture
def endpoint() -> Iterator[str]:
    """The address of an object store with a bucket."""
    with s3_server() as (_, options):
        fsspec.filesystem("s3", **options).mkdir("bucket")
        yield options["endpoint_url"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 1)
        dirs["orders", 0].append([(b"k%d" % (n % 3), b"%d" % n) for n in range(10)])
    return tmp_path / "data"


def append(data: Path) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].append([(b"k0", None), (b"k1", b"new")])


def delta_options(endpoint: str) -> dict[str, str]:
    return {**KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag"}


def iceberg_properties(endpoint: str, tmp_path: Path) -> dict[str, str]:
    return {
        "type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "s3://bucket/lake",
        "s3.endpoint": endpoint, "s3.access-key-id": "testing", "s3.secret-access-key": "testing",
        "s3.region": "us-east-1",
    }  # fmt: skip


def test_a_delta_table_in_s3(data: Path, endpoint: str) -> None:
    options = delta_options(endpoint)
    urls = {False: "s3://bucket/orders", True: "s3://bucket/latest"}
    for upsert, url in urls.items():
        sync_topic(data, "orders", url, options=options, upsert=upsert)
    append(data)
    for upsert, url in urls.items():
        sync_topic(data, "orders", url, options=options, upsert=upsert)
    found = [DeltaTable(url, storage_options=options).to_pyarrow_table()["offset"].to_pylist() for url in urls.values()]
    assert [sorted(offsets) for offsets in found] == [[*range(12)], [8, 11]]


def test_an_iceberg_table_of_a_catalog_by_name_in_s3(data: Path, endpoint: str, tmp_path: Path) -> None:
    properties = iceberg_properties(endpoint, tmp_path)
    flags = [word for name, value in properties.items() for word in ("-X", f"{name}={value}")]
    ok("table", "sync", "-d", data, "-t", "orders", *flags, "iceberg://prod/shop.orders")
    append(data)
    ok("table", "sync", "-d", data, "-t", "orders", *flags, "iceberg://prod/shop.orders")
    rows = closes_itself(load_catalog("prod", **properties)).load_table("shop.orders").scan().to_arrow()
    assert sorted(rows["offset"].to_pylist()) == [*range(12)]


@pytest.mark.parametrize("format", FORMATS)
def test_tasks_that_ran_twice_leave_one_file_each_in_s3(
    data: Path, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    run = killed_sync.run_here
    stored = fsspec.filesystem(
        "s3", key="testing", secret="testing", endpoint_url=endpoint, use_listings_cache=False
    )  # fmt: skip

    def twice(*given: Any) -> Any:
        run(*given)
        return run(*given)

    monkeypatch.setattr(killed_sync, "run_here", twice)
    is_delta = format == "delta"
    options = delta_options(endpoint) if is_delta else iceberg_properties(endpoint, tmp_path)
    target = "s3://bucket/orders" if is_delta else "iceberg://prod/shop.orders"
    for count in (1, 2):
        killed_sync.sync_here(data, target, options=options)
        files = [one for one in stored.find("bucket") if one.endswith(".parquet") and "_delta_log" not in one]
        assert len(files) == count and all("/kafkalog-" in one for one in files)
        append(data)
    table = DeltaTable(target, storage_options=options).to_pyarrow_table() if is_delta else (
        closes_itself(load_catalog("prod", **options)).load_table("shop.orders").scan().to_arrow()
    )  # fmt: skip
    assert sorted(table["offset"].to_pylist()) == [*range(12)]


def test_a_store_that_is_gone(data: Path) -> None:
    options = {**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "max_retries": "0"}
    with pytest.raises(StorageError, match="cannot load the table"):
        sync_topic(data, "orders", "s3://bucket/orders", options=options)


@pytest.mark.parametrize("properties", [[], ["uri=foo://user:secret@host"], ["type=none"]])
def test_a_catalog_that_is_not_described(data: Path, properties: list[str]) -> None:
    flags = [word for one in properties for word in ("-X", one)]
    done = command("table", "sync", "-d", data, "-t", "orders", *flags, "iceberg://nowhere/shop.orders")
    assert done.returncode != 0
    text = done.stderr.decode()
    assert "catalog 'nowhere' has no settings, or wrong ones" in text
    assert "secret" not in text
    assert "Traceback" not in text
