"""The transaction index as the reference's class reads it: look-ups and sanity, on the bytes of its own files."""

from typing import Any

import pytest

from kafkalog.errors import CorruptIndex, FormatError
from kafkalog.storage.index.aborted_txns import AbortedTxn, check_sanity, collect_aborted_txns, parse_aborted_txns
from tests.golden_cases import each_entry

pytestmark = pytest.mark.golden
FIELDS = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")


def entry_of(row: dict[str, Any]) -> AbortedTxn:
    return AbortedTxn(*(row.get(name, 0) for name in FIELDS))


def was_done(step: dict[str, Any]) -> bool:
    return step.get("result") == "ok"


@each_entry("txn_index")
def test_traces(entry: dict[str, Any]) -> None:
    """TXN-2, TXN-3, TXN-7: each look-up finds what the reference's class found in the entries so far.

    Appending and cutting are the owner's; here they only say which entries there are.
    """
    entries: list[AbortedTxn] = []
    looked = 0
    for step in entry["ops"]:
        kind = step["op"]
        if kind == "append" and was_done(step):
            entries.append(entry_of(step))
        elif kind == "truncateTo" and was_done(step):
            entries = [one for one in entries if one.last_offset < step["offset"]]
        elif kind == "reset":
            entries = []
        elif kind == "collectAbortedTxns":
            found = collect_aborted_txns(entries, step["fetchOffset"], step["upperBoundOffset"])
            assert [one._asdict() for one in found.aborted] == [
                entry_of(row)._asdict() for row in step["result"]["aborted"]
            ]
            assert found.is_complete == step["result"]["isComplete"]
            looked += 1
        elif kind == "file":
            assert parse_aborted_txns(bytes.fromhex(step["file"])) == entries
        elif kind == "sanityCheck":
            check_sanity(entries, entry["baseOffset"])
    assert looked or entries == []


@each_entry("txn_index", "sanity")
def test_sanity(entry: dict[str, Any]) -> None:
    """TXN-5, TXN-6: a partial entry is not looked at, one that ended before the segment is damage.

    Kafka 4.3 takes an entry whose second version byte it does not know, 4.4 refuses it. Ours refuses it wherever an
    entry decides what is read, and rebuilds the index: an unknown version may have another layout.
    """
    data = bytes.fromhex(entry["file"])
    outcomes = [told for name, told in entry.items() if name.startswith("result_base_")]
    if any("Unexpected aborted transaction version" in str(told) for told in outcomes):
        with pytest.raises(FormatError, match=r"version 1; the highest known is 0"):
            parse_aborted_txns(data, strict=True)
        return
    entries = parse_aborted_txns(data)
    for name, expected in entry.items():
        if not name.startswith("result_base_"):
            continue
        base = int(name.removeprefix("result_base_"))
        if isinstance(expected, str):
            check_sanity(entries, base)
            assert expected == f"ok, {len(entries)}"
        else:
            with pytest.raises(CorruptIndex):
                check_sanity(entries, base)
