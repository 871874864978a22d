"""Paths as callers hand them in: what names no file is said in a typed error by every way in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.cursors.store import CursorStore
from kafkalog.errors import IllegalArgument
from kafkalog.util.paths import real_path
from kafkalog.values.avro import AvroDecoder
from kafkalog.values.json_columns import JsonDecoder
from kafkalog.values.protobuf import ProtobufDecoder


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "other").symlink_to(tmp_path / "t-0")
    assert real_path(tmp_path / "other") == real_path(bytes(tmp_path / "t-0")) == str(tmp_path.resolve() / "t-0")


@pytest.mark.parametrize("path", ["/data\0/t-0", "/data/t\0-0", "/data/\ud800/t-0"])
@pytest.mark.parametrize(
    "use",
    [
        lambda path: kafkalog.open(path),
        lambda path: kafkalog.open(path, "a"),
        lambda path: kafkalog.open_dirs([path]),
        lambda path: kafkalog.open_dirs(path, "a"),
        lambda path: CursorStore(path),
        lambda path: AvroDecoder(path),
        lambda path: JsonDecoder(path),
        lambda path: ProtobufDecoder(path, message="a"),
    ],
    ids=["open-r", "open-a", "dirs-r", "dirs-a", "cursors", "avro", "json", "protobuf"],
)
def test_what_names_no_file(path: str, use: Callable[[str], Any]) -> None:
    with pytest.raises(IllegalArgument, match="is not a path"):
        use(path)
