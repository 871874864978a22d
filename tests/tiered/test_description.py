"""Descriptions of tiered stores by themselves: what a file may say, and what it may not."""

import json
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.tiered.description import Description, read_description


def described(where: Path, **fields: Any) -> Description:
    path = where / "tiered.json"
    path.write_text(json.dumps({"store": "s3://bucket"} | fields))
    return read_description(path)


def test_a_url_describes_a_store_without_keys() -> None:
    found = read_description("s3://bucket/kafka")
    assert found == ("s3://bucket/kafka", "", (), {}, {})


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert described(tmp_path) == ("s3://bucket", "", (), {}, {})
    fields = {
        "prefix": "kafka/", "metadata": ["a", "/b", "s3://data/c"], "keys": {"k": "key.pem", "l": "/l.pem"},
        "options": {"endpoint_url": "http://127.0.0.1:9"},
    }  # fmt: skip
    expected = Description(
        "s3://bucket", "kafka/", (str(tmp_path / "a"), "/b", "s3://data/c"),
        {"k": str(tmp_path / "key.pem"), "l": "/l.pem"}, {"endpoint_url": "http://127.0.0.1:9"},
    )  # fmt: skip
    assert described(tmp_path, **fields) == expected
    monkeypatch.chdir(tmp_path)
    assert read_description("tiered.json") == expected


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"prefx": ""}, "there is no field 'prefx'; did you mean prefix?"),
        ({"something": ""}, "there is no field 'something'"),
        ({"store": 1}, "store is not a URL"),
        ({"metadata": "ab"}, "metadata is not a list of directories"),
        ({"metadata": ["a", ""]}, "metadata is not a list of directories"),
        ({"metadata": [1]}, "metadata is not a list of directories"),
        ({"metadata": ["a", 1]}, "metadata is not a list of directories"),
        ({"keys": []}, "keys is not an object of paths by key id"),
        ({"keys": {"a": "b", "c": 1}}, "keys is not an object of paths by key id"),
        ({"options": []}, "options is not an object"),
    ],
)
def test_fields_that_are_wrong(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(IllegalArgument) as caught:
        described(tmp_path, **fields)
    assert caught.value.message == f"this is no description of a tiered store: {words}"
    assert caught.value.path == str(tmp_path / "tiered.json")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read the description of a tiered store") as caught:
        read_description(tmp_path / "none.json")
    assert caught.value.path == str(tmp_path / "none.json")
    (tmp_path / "deep.json").write_text("[" * 200_000)
    with pytest.raises(IllegalArgument, match="no description"):
        read_description(tmp_path / "deep.json")
