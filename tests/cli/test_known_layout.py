"""Ten million lines `hello lagou $i` with the default batch size give one known log, whatever the clock and machine."""

from pathlib import Path

import pytest

import kafkalog
from tests.commands import ok

COUNT = 10_000_000


@pytest.fixture(scope="module")
def produced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("layout")
    lines = directory / "input.txt"
    with lines.open("wb") as out:
        for at in range(1, COUNT + 1, 100_000):
            out.write(b"".join(b"hello lagou %d\n" % i for i in range(at, at + 100_000)))
    ok("produce", "-q", "-d", directory / "data", "-t", "tp_demo_05", "-l", "-X", "segment.bytes=104857600", lines)
    lines.unlink()
    return directory / "data" / "tp_demo_05-0"


@pytest.mark.slow
def test_batches_and_segments(produced: Path) -> None:
    with kafkalog.open(produced) as log:
        headers = [batch.header for batch in log.batches()]
        sizes = [(segment.base_offset, segment.size) for segment in log.segments]
        assert log.end_offset == COUNT
    spans = [(h.base_offset, h.last_offset, h.size) for h in headers]
    assert spans[:3] == [(0, 716, 16_380), (717, 1410, 16_371), (1411, 2092, 16_365)]
    assert (3_925_423, 3_926_028, 16_359) in spans
    assert (len(spans), sum(size for _, _, size in spans)) == (16_433, 268_839_629)
    assert [base for base, _ in sizes] == [0, 3_925_423, 7_809_277]
    assert sizes[0][1] == 104_856_093
    assert sum(size for _, size in sizes) == 268_839_629
