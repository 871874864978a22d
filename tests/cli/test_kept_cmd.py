"""`kafkalog kept`: what openings kept, from the refusal to the restored records, as a person goes through it."""

import json
from pathlib import Path

import pytest

import kafkalog
from tests import commands
from tests.storage.test_kept import FIRST, RECORDS, make_damaged, offsets, positions


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a damaged partition that was not closed well."""
    made = tmp_path / "data"
    made.mkdir()
    make_damaged(made)
    return made


def test_refuse_then_recover_list_restore_and_remove(data: Path, tmp_path: Path) -> None:
    refused = commands.kafkalog("produce", "-d", data, "-t", "orders", "--on-damage", "refuse", stdin=b"v\n")
    count = f"{RECORDS - 18} sound records in 42 batches (offsets 18 to {RECORDS - 1})"
    assert refused.returncode == 1 and count in refused.stderr.decode()
    assert commands.ok("kept", "list", data) == b""
    done = commands.kafkalog("produce", "-d", data, "-t", "orders", stdin=b"v\n")
    assert done.returncode == 0 and done.stderr.decode().count(count) == 1
    cut = positions(data / "orders-0" / FIRST)[5]
    (line,) = commands.ok("kept", "list", data).decode().splitlines()
    assert line.startswith(f"orders-0  {FIRST[:20]}-{cut}  {count}, ")
    reason = "the batch does not match its checksum"
    assert line.endswith(f"the log ended at offset 15, byte {cut} of {FIRST}, since {reason}")
    to = tmp_path / "to"
    told = commands.ok("kept", "restore", data, "--to", to).decode()
    assert told == f"orders-0: {count} restored to {to}/orders-0\n"
    assert offsets(to / "orders-0") == list(range(18, RECORDS))
    dry = commands.kafkalog("kept", "remove", data)
    assert dry.stdout.startswith(b"remove orders-0") and b"give --apply" in dry.stderr
    assert commands.ok("kept", "remove", data, "--apply").startswith(b"removed orders-0")
    assert commands.ok("kept", "list", data) == b""
    assert commands.kafkalog("kept", "restore", data, "--to", tmp_path / "none").returncode == 1


def test_json(data: Path, tmp_path: Path) -> None:
    kafkalog.open(data / "orders-0", "a").close()
    (line,) = map(json.loads, commands.ok("kept", "list", "-J", data).splitlines())
    assert line["type"] == "kept" and line["partition"] == "orders-0" and line["records"] == RECORDS - 18
    assert [one["name"] for one in line["files"]][1:] == [f"{36 * n:020d}.log" for n in (1, 2, 3)]
    (line,) = map(json.loads, commands.ok("kept", "restore", "-J", data, "--to", tmp_path / "to").splitlines())
    assert line == {
        "type": "restored", "partition": "orders-0", "path": f"{tmp_path}/to/orders-0", "doubled": 0, "batches": 42,
        "records": RECORDS - 18, "first_offset": 18, "last_offset": RECORDS - 1,
    }  # fmt: skip
    (line,) = map(json.loads, commands.ok("kept", "remove", "-J", data).splitlines())
    assert line["removed"] is False


def test_wrong_usage(data: Path) -> None:
    assert commands.kafkalog("kept", "list").returncode == 2
    assert commands.kafkalog("kept", "restore", data).returncode == 2
    kafkalog.open(data / "orders-0", "a").close()
    assert commands.kafkalog("kept", "restore", data, "--to", data).returncode == 2
    absent = commands.kafkalog("kept", "remove", data, "--entry", "1-2")
    assert absent.returncode == 1 and b"the entries are 0000" in absent.stderr


def test_nothing_to_restore_is_said_in_spite_of_q(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "data" / "orders-0", "a").close()
    found = commands.kafkalog("kept", "restore", tmp_path / "data", "--to", tmp_path / "to", "-q")
    assert found.returncode == 1 and found.stderr == b"kafkalog: there are no kept records\n"
