"""Mode "r" beside a writer in another process: rolls, deletion of old segments, truncation."""

import subprocess
import sys
from pathlib import Path

import kafkalog

WRITER = """
import sys, time
import kafkalog
path, count = sys.argv[1], int(sys.argv[2])
with kafkalog.open(path, "a", segment_bytes=20_000, index_interval_bytes=500) as log:
    print("ready", flush=True)
    n = 0
    while n < count:
        rows = [(b"k%d" % i, b"v%d" % i) for i in range(n, min(count, n + 25))]
        log.append(rows)
        n += len(rows)
        if n % 500 == 0:
            time.sleep(0.002)
        if n == 4000:
            sys.stdin.readline()
            log.delete_before(2000)
            print("deleted", flush=True)
    sys.stdin.readline()
    log.truncate_to(count - 50)
    log.append([(b"k%d" % i, b"other") for i in range(count - 50, count - 40)])
    print("cut", flush=True)
    sys.stdin.readline()
"""


def test_reader_follows_another_process(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    count = 6000
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin and writer.stdout

        def go(expected: str) -> None:
            writer.stdin.write("\n")  # type: ignore[union-attr]
            writer.stdin.flush()  # type: ignore[union-attr]
            assert writer.stdout.readline() == expected + "\n"  # type: ignore[union-attr]

        assert writer.stdout.readline() == "ready\n"
        with kafkalog.open(path) as log:
            seen = 0
            for record in log.tail(timeout=60, start=0):
                assert (record.offset, record.key) == (seen, b"k%d" % seen)
                seen += 1
                if seen == 4000:
                    break
            old = log.records(100, 150)
            assert next(old).offset == 100
            go("deleted")
            assert [record.offset for record in old] == list(range(101, 150))
            for record in log.tail(timeout=60, start=seen):
                assert (record.offset, record.key) == (seen, b"k%d" % seen)
                seen += 1
                if seen == count:
                    break
            assert 0 < log.segments[0].base_offset <= 2000
            assert log[count - 25].value == b"v%d" % (count - 25)
            go("cut")
            assert log.end_offset == count - 40
            assert log[-1].value == b"other"
            assert [record.value for record in log[-11:-9]] == [b"v%d" % (count - 51), b"other"]
            assert log.problems == ()
        writer.stdin.write("\n")
    assert writer.returncode == 0
    with kafkalog.open(path) as log:
        assert (log.start_offset, log.end_offset) == (2000, count - 40)
        assert [record.offset for record in log] == list(range(2000, count - 40))
