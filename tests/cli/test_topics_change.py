"""`kafkalog topics alter | delete`, and offsets of all topics of a directory."""

import json
from pathlib import Path

import pytest

import kafkalog as library
from tests.commands import kafkalog, ok
from tests.manager.metadata_files import topic_values, write_metadata


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    """Topic `t` in two directories, its second partition with three records; `u` in the first."""
    found = [tmp_path / "a", tmp_path / "b"]
    with library.open_dirs(found, "a") as store:
        store.create_topic("t", 2, {"retention.ms": 5})
        store["t", 1].append([b"v"] * 3)
        store.create_topic("u")
    return found


def flags(dirs: list[Path]) -> list[str | Path]:
    return [part for one in dirs for part in ("-d", one)]


def test_alter_settings(dirs: list[Path]) -> None:
    """Set and unset, in the files of all directories; the clean-shutdown markers stay."""
    done = kafkalog("topics", "alter", *flags(dirs), "-t", "t", "-c", "segment.ms=7", "--delete-config", "retention.ms")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"t: segment.ms=7\n")
    for one in dirs:
        entry = json.loads((one / "kafkalog.topics.json").read_text())["topics"]["t"]
        assert entry["configs"] == {"segment.ms": "7"}
        assert (one / ".kafka_cleanshutdown").exists()
    with library.open_dirs(dirs, "a") as store:
        assert store.topics["t"].settings == {"segment.ms": "7"}
    said = kafkalog("topics", "alter", *flags(dirs), "-t", "t", "--delete-config", "segment.ms").stderr
    assert said == b"t: no settings of its own\n"


def test_more_partitions(dirs: list[Path]) -> None:
    """In the topic's directories, evenly; what is there stays, and all carry one id."""
    done = kafkalog("topics", "alter", *flags(dirs), "-t", "t", "--partitions", "5")
    assert (done.returncode, done.stderr) == (0, b"t: added 3 partitions, it now has 5\n")
    with library.open_dirs(dirs, "a") as store:
        assert store.topics["t"].partitions == (0, 1, 2, 3, 4)
        assert store["t", 1].end_offset == 3
        assert {one.partitions for one in store.directories} == {3}
    ids = {path.read_text() for one in dirs for path in one.glob("t-*/partition.metadata")}
    assert len(ids) == 1
    assert kafkalog("topics", "alter", *flags(dirs), "-t", "t", "--partitions", "5", "-q").stderr == b""
    assert b"from 5 partitions to 1" in kafkalog("topics", "alter", *flags(dirs), "-t", "t", "--partitions", "1").stderr


def test_alter_a_broker_s_topic_keeps_its_settings_and_id(tmp_path: Path) -> None:
    library.open(tmp_path / "t-0", "a").close()
    (tmp_path / "kafkalog.topics.json").unlink()
    topic_id = (tmp_path / "t-0" / "partition.metadata").read_text().split()[-1]
    write_metadata(tmp_path, topic_values("t", {"retention.ms": "5", "segment.ms": "7"}))
    described = json.loads(ok("topics", "describe", "-J", "-d", tmp_path, "-t", "t"))
    assert (described["settings"], described["topic_id"]) == ({"retention.ms": "5", "segment.ms": "7"}, topic_id)
    ok("topics", "alter", "-d", tmp_path, "-t", "t", "-c", "segment.ms=8")
    entry = json.loads((tmp_path / "kafkalog.topics.json").read_text())["topics"]["t"]
    assert (entry["configs"], entry["id"]) == ({"retention.ms": "5", "segment.ms": "8"}, topic_id)


def test_delete(dirs: list[Path]) -> None:
    """MGR-10: directories, lines in checkpoints and the entry are gone; other topics and markers stay."""
    shown = kafkalog("topics", "delete", *flags(dirs), "-t", "t")
    assert shown.stdout.decode() == "".join(f"delete {dirs[at] / f't-{at}'}\n" for at in (0, 1))
    assert shown.stderr == b"topic t with 2 partitions to delete, nothing was changed: give --apply\n"
    assert ok("topics", "list", *flags(dirs)) == b"t\nu\n"
    done = kafkalog("topics", "delete", *flags(dirs), "-t", "t", "--apply")
    assert (done.returncode, done.stderr) == (0, b"deleted topic t with 2 partitions\n")
    assert sorted(path.name for one in dirs for path in one.iterdir() if path.is_dir()) == ["u-0"]
    for one in dirs:
        assert "\nt " not in (one / "recovery-point-offset-checkpoint").read_text()
        assert "t" not in json.loads((one / "kafkalog.topics.json").read_text())["topics"]
        assert (one / ".kafka_cleanshutdown").exists()
    assert ok("topics", "list", *flags(dirs)) == b"u\n"
    assert kafkalog("topics", "delete", *flags(dirs), "-t", "t").returncode == 1
    again = kafkalog("topics", "delete", *flags(dirs), "-t", "t", "--if-exists", "--apply")
    assert (again.returncode, again.stderr) == (0, b"there is no topic t\n")
    ok("topics", "create", *flags(dirs), "-t", "t")
    assert ok("offsets", "get", *flags(dirs), "-t", "t") == b"t:0:0\n"


def test_delete_a_broker_s_topic_says_what_a_broker_does(tmp_path: Path) -> None:
    library.open(tmp_path / "t-0", "a").close()
    write_metadata(tmp_path, topic_values("t", {}))
    assert b"a broker recreates it" in kafkalog("topics", "delete", "-d", tmp_path, "-t", "t", "--apply").stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["alter", "-t", "t"], 2, "nothing to change"),
        (["alter", "-t", "t", "-c", "retention.mss=1"], 2, "did you mean retention.ms"),
        (["alter", "-t", "t", "-c", "retention.ms=-2"], 2, "retention.ms"),
        (["alter", "-t", "t", "--delete-config", "retention.mss"], 2, "did you mean retention.ms"),
        (["alter", "-t", "t", "-c", "retention.ms=1", "--delete-config", "retention.ms"], 2, "both set and deleted"),
        (["alter", "-t", "none", "-c", "retention.ms=1"], 1, "there is no topic none"),
        (["alter", "-t", "t", "--partitions", "2147483647"], 1, "at most 10000"),
        (["alter", "-t", "none", "--partitions", "2"], 1, "there is no topic none"),
        (["delete", "-t", "none"], 1, "there is no topic none"),
        (["delete"], 2, "--topic"),
    ],
)
def test_wrong_usage(dirs: list[Path], arguments: list[str], status: int, said: str) -> None:
    before = (dirs[0] / "kafkalog.topics.json").read_bytes()
    done = kafkalog("topics", arguments[0], *flags(dirs), *arguments[1:])
    assert (done.returncode, said in done.stderr.decode()) == (status, True), done.stderr
    assert (dirs[0] / "kafkalog.topics.json").read_bytes() == before


def test_directories_in_use_are_refused(dirs: list[Path]) -> None:
    with library.open_dirs(dirs, "a"):
        for arguments in (["delete", "--apply"], ["alter", "-c", "retention.ms=1"], ["alter", "--partitions", "9"]):
            done = kafkalog("topics", arguments[0], *flags(dirs), "-t", "t", *arguments[1:])
            assert done.returncode == 1 and b"locked" in done.stderr
    with library.open_dirs(dirs) as store:
        assert store.topics["t"].partitions == (0, 1)


def test_offsets_of_all_topics(dirs: list[Path]) -> None:
    assert ok("offsets", "get", *flags(dirs)) == b"t:0:0\nt:1:3\nu:0:0\n"
    lines = [json.loads(line) for line in ok("offsets", "get", "-J", *flags(dirs), "--time", "0").splitlines()]
    assert [(one["topic"], one["partition"], one["offset"]) for one in lines] == [
        ("t", 0, None), ("t", 1, 0), ("u", 0, None),
    ]  # fmt: skip
    assert b"give -t" in kafkalog("offsets", "get", *flags(dirs), "-p", "1").stderr
