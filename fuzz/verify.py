"""The check of a segment file, in one piece and in many: the same verdict; and the search for a header past damage."""

from kafkalog._core.log import segment_check as check
from kafkalog.records.builder import RecordsBuilder

SEALS = True
STOPS = (check.END, check.PARTIAL, check.MORE)
BASE = 2
_LARGE = RecordsBuilder(BASE)
_LARGE.append(1_700_000_000_000, None, bytes(5000))
LARGE = bytes(_LARGE.build())
ENTRIES = b"".join((n).to_bytes(4, "big") + (20 * n).to_bytes(4, "big") for n in range(1, 9))
TIMES = b"".join((1_700_000_000_000 + n).to_bytes(8, "big") + n.to_bytes(4, "big") for n in range(9))


def run(data: memoryview) -> None:
    """Whatever the pieces, the check sees the same batches and the same faults, and comes to an end."""
    content = LARGE + bytes(data) if len(data) % 4 == 0 else bytes(data)
    whole = verdict(content, len(content))
    assert whole == verdict(content, 777)
    assert whole[-1] <= len(content)


def verdict(content: bytes, piece: int) -> tuple[object, ...]:
    """Return the check's verdict on a file that arrives in pieces."""
    state = check.BatchCheck(BASE, len(content))
    state.expect_entries(ENTRIES, TIMES)
    size, faults, at = piece, [], -1
    while True:
        status = state.check(content, state.position, min(size, len(content) - state.position))
        if status == check.MORE:
            size = size * 2 if state.position == at else piece
        elif status in (check.END, check.PARTIAL):
            break
        else:
            faults.append((status, state.position))
            if status == check.BAD_SIZE and not skipped(state, content):
                break
        assert len(faults) <= len(content) and (size <= 4 * len(content) + piece)
        at = state.position
    entries = (state.index_result, state.time_result, state.epoch_runs, state.abort_markers)
    numbers = (state.batches, state.records, state.next_offset, state.gaps, state.thinned, state.max_timestamp)
    return (status, faults, entries, numbers, state.last_good)


def skipped(state: check.BatchCheck, content: bytes) -> bool:
    """Goes on at the next bytes that could be a header, if there are any."""
    start = state.position + 1
    found = check.find_header(content, start, len(content) - start, len(content) - start, BASE)
    assert found == -1 or start <= found < len(content)
    if found >= 0:
        state.skip_to(found)
    return found >= 0
