"""A segment's transaction index, open for writing (checklist TXN)."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog.errors import CorruptIndex, IllegalArgument, StorageError
from kafkalog.storage.index.aborted_txns import AbortedTxn, read_aborted_txns
from kafkalog.storage.index.transaction_index import TransactionIndex
from kafkalog.util.descriptors import DESCRIPTORS
from tests.counting import Counting
from tests.faults import FaultFS

ENTRIES = [AbortedTxn(0, 0, 0, 10, 11), AbortedTxn(0, 1, 5, 15, 13), AbortedTxn(0, 2, 18, 35, 25),
           AbortedTxn(0, 3, 32, 50, 40)]  # fmt: skip


def write_index(path: Path) -> TransactionIndex:
    index = TransactionIndex(path / "00000000000000000000.txnindex", 0)
    for entry in ENTRIES:
        index.append(entry)
    return index


@pytest.mark.parametrize("last", [50, 49, 0, -1])
def test_last_offsets_rise(tmp_path: Path, last: int) -> None:
    """TXN-1: an equal or lower one is refused, also after a reopen; nothing is written."""
    index = write_index(tmp_path)
    for one in (index, TransactionIndex(index.path, 0)):
        with pytest.raises(IllegalArgument, match="cannot follow one that ends at 50"):
            one.append(AbortedTxn(0, 4, 0, last, 60))
        assert one.entries() == ENTRIES
        one.close()
    index.append(AbortedTxn(0, 4, 0, 51, 60))
    assert index.count == 5
    index.close()


@pytest.mark.parametrize(("call", "use", "message"), [
    ("fsync", lambda index: index.flush(), "cannot sync the transaction index"),
    ("ftruncate", lambda index: index.truncate_to(11), "cannot truncate the transaction index"),
    ("pwrite", lambda index: index.append(AbortedTxn(0, 4, 0, 60, 60)), "cannot write the transaction index"),
    ("unlink", lambda index: index.delete_if_exists(), "cannot delete the transaction index"),
    ("rename", lambda index: index.rename_to(index.path + ".deleted"), "cannot rename the transaction index"),
])  # fmt: skip
def test_what_the_system_refuses_names_the_file_and_changes_nothing(
    tmp_path: Path, call: str, use: Callable[[TransactionIndex], object], message: str
) -> None:
    """TXN-8: what is tried again succeeds."""
    path = write_index(tmp_path).path
    fs = FaultFS()
    index = TransactionIndex(path, 0, fs=fs)
    assert index.count == len(ENTRIES)
    fs.fail(call, code=errno.EIO, times=1)
    with pytest.raises(StorageError, match=message) as caught:
        use(index)
    assert (caught.value.errno, caught.value.path) == (errno.EIO, path)
    assert index.entries() == ENTRIES
    use(index)
    index.close()


@pytest.mark.parametrize("end", [TransactionIndex.close, TransactionIndex.delete_if_exists])
def test_a_closed_one_is_no_open_file_any_more(tmp_path: Path, end: Callable[[TransactionIndex], object]) -> None:
    before = len(DESCRIPTORS)
    index = write_index(tmp_path)
    assert len(DESCRIPTORS) == before + 1
    end(index)
    assert len(DESCRIPTORS) == before


@pytest.mark.parametrize(("offset", "left"), [(51, 4), (50, 3), (36, 3), (35, 2), (11, 1), (10, 0), (0, 0)])
def test_cutting(tmp_path: Path, offset: int, left: int) -> None:
    """TXN-4: what ends at or above the offset goes; appends go on behind what is left."""
    index = write_index(tmp_path)
    index.truncate_to(offset)
    assert index.entries() == ENTRIES[:left] == read_aborted_txns(Path(index.path))
    index.append(AbortedTxn(0, 9, 0, 99, 100))
    assert index.count == left + 1
    index.close()


def test_a_reset_leaves_none(tmp_path: Path) -> None:
    """TXN-4."""
    index = write_index(tmp_path)
    index.reset()
    assert index.entries() == [] and Path(index.path).read_bytes() == b""
    index.append(ENTRIES[0])
    assert index.entries() == ENTRIES[:1]
    index.close()


def test_the_file_comes_with_the_first_entry(tmp_path: Path) -> None:
    """TXN-8: not with a flush, a read, a cut or a reset of nothing; a removal returns whether it existed."""
    path = tmp_path / "00000000000000000000.txnindex"
    index = TransactionIndex(path, 0)
    index.flush()
    index.truncate_to(0)
    index.reset()
    assert index.entries() == [] and index.count == 0 and not index.collect(0, 100).aborted
    assert not path.exists() and index.delete_if_exists() is False
    index.append(ENTRIES[0])
    assert path.stat().st_size == 34
    index.close()
    assert TransactionIndex(path, 0).delete_if_exists() is True and not path.exists()


def test_appends_follow_a_rename(tmp_path: Path) -> None:
    """TXN-8: whether the file is open at that moment or not, and where there is none yet."""
    index = write_index(tmp_path)
    index.rename_to(str(tmp_path / "b.txnindex"))
    index.append(AbortedTxn(0, 4, 0, 51, 60))
    index.close()
    index.rename_to(str(tmp_path / "c.txnindex"))
    index.append(AbortedTxn(0, 5, 0, 52, 60))
    index.close()
    assert [path.name for path in tmp_path.iterdir()] == ["c.txnindex"]
    assert [entry.last_offset for entry in read_aborted_txns(tmp_path / "c.txnindex")] == [10, 15, 35, 50, 51, 52]
    empty = TransactionIndex(tmp_path / "d.txnindex", 0)
    empty.rename_to(str(tmp_path / "e.txnindex"))
    empty.append(ENTRIES[0])
    empty.close()
    assert not (tmp_path / "d.txnindex").exists() and (tmp_path / "e.txnindex").exists()


def test_many_entries_are_read_in_pieces(tmp_path: Path) -> None:
    """TXN-2: a search ends with the first entry that says that all is known; what lies behind is not read."""
    entries = [AbortedTxn(0, 1, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(10_000)]
    fs = Counting()
    index = TransactionIndex(tmp_path / "00000000000000000000.txnindex", 0, fs=fs)
    index.extend(entries)
    assert index.entries() == entries
    fs.reads.clear()
    found = index.collect(5000, 5003)
    assert found.aborted == entries[2500:2502] and found.is_complete
    assert sum(fs.reads) < 200_000
    index.close()


def test_a_huge_file_is_not_taken_into_memory(tmp_path: Path) -> None:
    """TXN-5: a file of zeros as long as an index may be; the first entry shows what it is."""
    path = tmp_path / "00000000000000000100.txnindex"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    fs = Counting()
    index = TransactionIndex(path, 100, fs=fs)
    with pytest.raises(CorruptIndex, match="before the segment's first offset 100"):
        index.sanity_check()
    assert sum(fs.reads) < 1 << 20
    index.close()


def test_a_close_that_the_system_refuses_names_the_file(tmp_path: Path) -> None:
    """A file system may report a failed write only then; the descriptor is closed, and nothing is lost."""
    fs = FaultFS()
    index = TransactionIndex(tmp_path / "00000000000000000000.txnindex", 0, fs=fs)
    index.append(ENTRIES[0])
    fs.fail("close", times=1)
    with pytest.raises(StorageError, match="close the transaction index") as caught:
        index.close()
    assert caught.value.path == index.path
    index.append(ENTRIES[1])
    index.close()
    assert read_aborted_txns(index.path) == ENTRIES[:2]
