"""The self-test of `verify`: a machine that computes wrong checksums reports no sound batch as damaged."""

import zlib
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pytest

import kafkalog
from kafkalog.errors import IllegalState
from kafkalog.tools.verify.directories import check_checksums, verify


@pytest.fixture(autouse=True)
def first_call() -> Iterator[None]:
    """The test runs once per process: it runs again here, and for the next caller."""
    check_checksums.cache_clear()
    yield
    check_checksums.cache_clear()


def test_the_kernels_of_this_machine_agree() -> None:
    check_checksums()


@pytest.mark.parametrize(("module", "name"), [(crc32c, "crc32c"), (zlib, "crc32")])
@pytest.mark.parametrize("wrong_from_bytes", [0, 128, 10_000])
def test_a_difference_ends_verify(
    module: object, name: str, wrong_from_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.append([b"first"])
    right = getattr(module, name)
    monkeypatch.setattr(module, name, lambda data: right(data) ^ (len(data) >= wrong_from_bytes))
    with pytest.raises(IllegalState, match="computes the CRC-32") as raised:
        verify(tmp_path)
    assert "KAFKALOG_CPU=portable" in str(raised.value)
