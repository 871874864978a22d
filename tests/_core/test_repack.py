"""A batch with other record bytes: header kept, size, codec and checksum made to fit."""

import pytest

from kafkalog._core.batch.repack import with_payload
from kafkalog._core.batch.scan import scan
from tests.builder import R, batch, message_v1, seal


@pytest.mark.parametrize("codec", range(8))
def test_header_is_kept(codec: int) -> None:
    plain = batch([R(), R()], base_offset=77, leader_epoch=3, attributes=0x58, producer_id=9)
    out = bytes(with_payload(plain, b"payload", codec))
    wanted = bytearray(plain[:61] + b"payload")
    wanted[8:12] = (61 + 7 - 12).to_bytes(4, "big")
    wanted[21:23] = (0x58 | codec).to_bytes(2, "big")
    assert out == seal(bytes(wanted))
    assert scan(out)[0].is_valid


def test_there_and_back() -> None:
    plain = batch([R(b"a" * 300), R(b"b")])
    packed = with_payload(memoryview(plain), b"x" * 10, 3)
    assert bytes(with_payload(packed, memoryview(plain)[61:], 0)) == plain


def test_what_is_no_batch() -> None:
    for data in (b"", batch([R()])[:60], message_v1(0, bytes(60))):
        with pytest.raises(ValueError, match="no batch"):
            with_payload(data, b"", 1)
    with pytest.raises(ValueError, match="codec 8"):
        with_payload(batch([R()]), b"", 8)
