"""The error tree: codes, attributes, text, builtin kinds."""

import copy
import errno
import io
import pickle

import pytest

from kafkalog import errors
from kafkalog.errors import (
    ApiError,
    KafkalogError,
    StorageError,
    UnknownServerError,
    from_code,
)

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KafkalogError)]

# the wire code of each error of design.md, as Kafka's protocol numbers them
CODES = {
    1: "OffsetOutOfRange", 2: "CorruptRecord", 3: "UnknownTopicOrPartition", 6: "NotLeaderOrFollower",
    10: "RecordTooLarge", 17: "InvalidTopic", 18: "RecordBatchTooLarge", 19: "NotEnoughReplicas",
    20: "NotEnoughReplicasAfterAppend", 29: "Unauthorized", 30: "GroupUnauthorized",
    31: "ClusterUnauthorized", 32: "InvalidTimestamp", 36: "TopicExists", 37: "InvalidPartitions",
    38: "InvalidReplicationFactor", 39: "InvalidReplicaAssignment", 42: "InvalidRequest", 43: "UnsupportedForFormat",
    44: "PolicyViolation", 45: "OutOfOrderSequence", 46: "DuplicateSequence",
    47: "InvalidProducerEpoch", 48: "InvalidTxnState", 52: "CoordinatorFenced", 56: "StorageError",
    74: "FencedLeaderEpoch", 75: "UnknownLeaderEpoch", 76: "UnsupportedCompression",
    78: "OffsetNotAvailable", 87: "InvalidRecord", 89: "ThrottlingQuotaExceeded", 103: "InconsistentTopicId",
    121: "InvalidRecordState",
}  # fmt: skip

BUILTINS = {
    "OffsetOutOfRange": LookupError, "CorruptRecord": ValueError, "UnknownTopicOrPartition": LookupError,
    "PartitionNotFound": FileNotFoundError, "StorageError": OSError, "InvalidRecord": ValueError,
    "InvalidOffset": ValueError, "IllegalArgument": ValueError, "IllegalState": RuntimeError,
    "IndexOffsetOverflow": RuntimeError, "SegmentOffsetOverflow": RuntimeError,
    "UnexpectedAppendOffset": RuntimeError, "OffsetsOutOfOrder": ValueError,
    "CleaningAborted": RuntimeError, "FormatError": ValueError,
    "CorruptIndex": ValueError, "CorruptSnapshot": ValueError, "CorruptCheckpoint": ValueError,
    "DirectoryLocked": OSError, "ReadOnlyLog": io.UnsupportedOperation, "LogClosed": ValueError,
    "ConfigError": ValueError, "UnknownConfig": TypeError, "NotAPartition": ValueError,
}  # fmt: skip


@pytest.mark.parametrize(("code", "name"), CODES.items())
def test_from_code_gives_the_class_of_that_code(code: int, name: str) -> None:
    error = from_code(code, "said the server", offset=4)
    assert type(error).__name__ == name
    assert (error.code, error.message, error.offset) == (code, "said the server", 4)


def test_every_code_of_the_tree_is_in_the_table() -> None:
    named = {kind.code for kind in KINDS if issubclass(kind, ApiError) and kind.code > 0}
    assert named == set(CODES)


def test_an_unknown_code_is_kept() -> None:
    error = from_code(999)
    assert type(error) is UnknownServerError
    assert error.code == 999
    assert type(from_code(-1)) is UnknownServerError


def test_code_zero_is_no_error() -> None:
    with pytest.raises(ValueError, match="success"):
        from_code(0)


@pytest.mark.parametrize(("name", "builtin"), BUILTINS.items())
def test_derives_from_the_fitting_builtin(name: str, builtin: type[Exception]) -> None:
    assert issubclass(getattr(errors, name), builtin)
    assert issubclass(getattr(errors, name), KafkalogError)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_says_what_where_and_what_to_do(kind: type[KafkalogError], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.abiflags", "")  # without the GIL MissingPackage says more
    error = kind("it broke.", path="/d/t-0/00.log", offset=7, position=120, hint="mend it")
    assert str(error) == "it broke (file /d/t-0/00.log, offset 7, position 120). Hint: mend it"
    assert str(kind("it broke", position=0)).startswith("it broke (position 0)")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_pickles_and_copies(kind: type[KafkalogError]) -> None:
    error = kind("it broke", path="/x", offset=7, position=120, hint="mend it")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert (again.path, again.offset, again.position, again.hint) == ("/x", 7, 120, "mend it")


def test_no_text_at_all_shows_the_class() -> None:
    assert str(errors.CorruptIndex()) == "CorruptIndex"


def test_retriable_as_in_the_protocol() -> None:
    retriable = {kind.__name__ for kind in KINDS if kind.retriable}
    assert {"CorruptRecord", "UnknownTopicOrPartition", "NotLeaderOrFollower", "StorageError"} <= retriable
    assert not {"OffsetOutOfRange", "RecordTooLarge", "InvalidRecord", "ConfigError"} & retriable


def test_storage_error_keeps_errno_file_and_gives_a_hint() -> None:
    error = StorageError.from_os(OSError(errno.ENOSPC, "No space left", "/d/x.log"), "append", position=9)
    assert isinstance(error, OSError)
    assert (error.errno, error.path, error.filename, error.position) == (errno.ENOSPC, "/d/x.log", "/d/x.log", 9)
    assert "cannot append" in str(error)
    assert "free space" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (again.errno, again.filename, str(again)) == (errno.ENOSPC, "/d/x.log", str(error))


def test_from_os_lets_a_typed_error_through() -> None:
    locked = errors.DirectoryLocked("held", path="/d/.lock")
    with pytest.raises(errors.DirectoryLocked) as caught:
        StorageError.from_os(locked, "open")
    assert caught.value is locked


def test_refused_records_are_listed() -> None:
    error = errors.InvalidTimestamp("2 records refused", record_errors=[(0, "too old"), (3, "too new")])
    assert error.record_errors == ((0, "too old"), (3, "too new"))
    assert pickle.loads(pickle.dumps(error)).record_errors == error.record_errors
