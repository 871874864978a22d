"""The topics of a data directory without a broker: ids, partition counts and settings.

They are stored in one JSON file beside the partition directories, written atomically. A broker ignores plain files
there. Partition directories without an entry are legal: a broker created them.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kafkalog.config.topic import LogConfig, key_for
from kafkalog.errors import (
    ConfigError,
    CorruptCheckpoint,
    IllegalArgument,
    InvalidPartitions,
    InvalidTopic,
    StorageError,
    UnknownTopicOrPartition,
)
from kafkalog.storage.names import MAX_PARTITION, validate_topic
from kafkalog.storage.partition_metadata import check_topic_id, new_topic_id
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.guards import guard
from kafkalog.util.os_errors import os_errors

TOPICS_FILE: Final = "kafkalog.topics.json"
VERSION: Final = 1
MAX_FILE_BYTES: Final = 64 << 20
MAX_GONE: Final = 1000
MAX_PARTITIONS: Final = MAX_PARTITION + 1
MAX_PARTITIONS_AT_ONCE: Final = 10_000
"""Maximum partitions that one call creates, as in the reference's controller (`MAX_PARTITIONS_PER_BATCH`)."""
_HINT: Final = (
    "repair it by hand, or move it away: the records are untouched and readable without it, "
    "but topic settings revert to the defaults"
)
_write_lock: Final = guard()
_Identity = tuple[int, int, int]


class TopicEntry(NamedTuple):
    """One topic: its name, id (22 characters), number of partitions and settings (dotted name to text).

    `is_deleted`: its delete has begun, and the next start continues it.
    """

    name: str
    topic_id: str
    partitions: int
    settings: Mapping[str, str]
    is_deleted: bool = False


class WantedTopic(NamedTuple):
    """A topic that a directory should have, with at least `partitions` partitions.

    `settings` (names dotted or not, text or values) and `topic_id` (None: a fresh one) apply to a new topic; a known
    one keeps its own.
    """

    name: str
    partitions: int = 1
    settings: Mapping[str, object] | None = None
    topic_id: str | None = None


class TopicsFile(NamedTuple):
    """Contents of a topics file: topics by name, and the ids of recently deleted topics, the oldest first.

    The ids identify partitions of deleted topics in a data directory that was absent during the delete. A topic that
    was created again under its old id, as a broker does by its own metadata, is in both.
    """

    topics: dict[str, TopicEntry]
    gone: tuple[str, ...] = ()


class TopicStore:
    """The topics file of one data directory. Each read checks the file, and parses it if it has changed.

    Threads: safe. Processes: a caller of `ensure` holds the directory's LogDir.
    """

    def __init__(self, directory: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
        self.path = os.path.join(os.fspath(directory), TOPICS_FILE)
        self._fs = fs
        self._read: tuple[_Identity, TopicsFile] | None = None  # replaced whole

    def topics(self) -> dict[str, TopicEntry]:
        """Return all topics by name, sorted; none if there is no file. Errors as `read`."""
        return self.read().topics

    def read(self) -> TopicsFile:
        """Return the file's contents; empty if there is no file.

        CorruptCheckpoint names the file and the fault in it; StorageError if it cannot be read.
        """
        cached = self._read
        try:
            identity = self._identity()
            if cached is not None and cached[0] == identity:
                return cached[1]
            content = self._fs.read_file(self.path, MAX_FILE_BYTES)
        except FileNotFoundError:
            return TopicsFile({})
        except OSError as error:
            raise StorageError.from_os(error, "read the topics file", path=self.path) from error
        try:
            parsed = parse_file(content)
        except ValueError as error:
            raise CorruptCheckpoint(f"the topics file is damaged: {error}", path=self.path, hint=_HINT) from None
        self._read = identity, parsed
        return parsed

    def _identity(self) -> _Identity:
        """Return values that differ for other contents: the file is replaced, never written in place."""
        stat = self._fs.stat(self.path)
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    def names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return list(self.topics())

    def get(self, name: str) -> TopicEntry | None:
        """Return the topic's entry; None if it does not exist, or if a broker created it."""
        return self.topics().get(name)

    def ensure(
        self,
        name: str,
        *,
        partitions: int = 1,
        settings: Mapping[str, object] | None = None,
        topic_id: str | None = None,
    ) -> TopicEntry:
        """Return the topic's entry; arguments and errors as for `ensure_all`."""
        return self.ensure_all((WantedTopic(name, partitions, settings, topic_id),))[0]

    def ensure_all(self, wanted: Iterable[WantedTopic]) -> list[TopicEntry]:
        """Return the topics' entries in the order given, creating or extending them in one write.

        InvalidTopic, InvalidPartitions, ConfigError, IllegalArgument for an invalid id; StorageError if the file cannot
        be written.
        """
        checked = [_checked(one) for one in wanted]
        with _write_lock:
            topics, gone = self.read()
            after, found = dict(topics), []
            for one in checked:
                known = after.get(one.name)
                if known is None:
                    known = one if one.topic_id else one._replace(topic_id=new_topic_id())
                else:
                    known = known._replace(partitions=max(known.partitions, one.partitions))
                after[one.name] = known
                found.append(known)
            if after != topics:
                self._write_locked(after, gone)
        return found

    def alter(self, name: str, changes: Mapping[str, object]) -> TopicEntry:
        """Change some settings of a topic and return its entry; None resets a setting to its default.

        UnknownTopicOrPartition if the file has no such topic; ConfigError, StorageError: nothing was changed.
        """
        new_values = {key_for(setting).name: value for setting, value in changes.items()}
        with _write_lock:
            topics, gone = self.read()
            known = topics.get(name)
            if known is None:
                raise UnknownTopicOrPartition(f"there is no topic {ascii(name[:80])} here", path=self.path)
            unchanged = {setting: value for setting, value in known.settings.items() if setting not in new_values}
            changed = known._replace(settings=LogConfig.from_stored({**unchanged, **new_values}).overrides())
            self._write_locked({**topics, name: changed}, gone)
        return changed

    def mark_deleted(self, names: Iterable[str], is_deleted: bool = True) -> None:
        """Record in these topics' existing entries that their delete has begun, or not. StorageError."""
        with _write_lock:
            topics, gone = self.read()
            existing = [topics[name] for name in names if name in topics]
            changed = {
                one.name: one._replace(is_deleted=is_deleted) for one in existing if one.is_deleted != is_deleted
            }
            if changed:
                self._write_locked({**topics, **changed}, gone)

    def remove(self, names: Iterable[str], deleted_ids: Iterable[str] = ()) -> None:
        """Remove topics from the file. StorageError.

        `deleted_ids` are ids of deleted topics, which the file lists from now on.
        """
        with _write_lock:
            topics, gone = self.read()
            existing = {name for name in names if name in topics}
            known = frozenset(gone)
            new_ids = [one for one in dict.fromkeys(deleted_ids) if one not in known]
            if existing or new_ids:
                remaining = {name: entry for name, entry in topics.items() if name not in existing}
                self._write_locked(remaining, (*gone, *new_ids))

    def _write_locked(self, topics: Mapping[str, TopicEntry], gone: Sequence[str]) -> None:
        last = _last_of(gone, topics)
        self._read = None
        with os_errors("write the topics file", self.path):
            atomic_write(self._fs, self.path, format_topics(topics, last))
            self._read = self._identity(), TopicsFile(dict(sorted(topics.items())), tuple(last))


def format_topics(topics: Mapping[str, TopicEntry], gone: Sequence[str] = ()) -> bytes:
    """Return the file's content for these topics: JSON, a line for each topic, sorted; the last of many `gone`."""
    lines = []  # names and ids need no escapes
    for name, (_, topic_id, partitions, settings, is_deleted) in sorted(topics.items()):
        configs = json.dumps(settings, sort_keys=True) if settings else "{}"
        deleted = ', "deleted": true' if is_deleted else ""
        lines.append(f'"{name}": {{"id": "{topic_id}", "partitions": {partitions}, "configs": {configs}{deleted}}}')
    last = _last_of(gone, topics)
    end = f',\n"gone": {json.dumps(last)}' if last else ""
    entries = ",\n".join(lines)
    return f'{{"version": {VERSION}, "topics": {{\n{entries}\n}}{end}}}\n'.encode()


def _last_of(gone: Sequence[str], topics: Mapping[str, TopicEntry]) -> list[str]:
    """Return the ids of deleted topics that the file keeps: the last ones, and those that a topic has again."""
    live = {topic.topic_id for topic in topics.values()}
    return [one for at, one in enumerate(gone, MAX_GONE - len(gone)) if at >= 0 or one in live]


def _checked(wanted: WantedTopic) -> TopicEntry:
    """Return the entry of a topic, its id empty if none is given. Errors as for `TopicStore.ensure_all`."""
    validate_topic(wanted.name)
    check_partitions(wanted.partitions)
    overrides = LogConfig.from_stored(wanted.settings).overrides() if wanted.settings else {}
    topic_id = "" if wanted.topic_id is None else check_topic_id(wanted.topic_id)
    return TopicEntry(wanted.name, topic_id, wanted.partitions, overrides)


def parse_file(content: bytes) -> TopicsFile:
    """Parse a file's content; the topics are sorted by name. ValueError names the fault."""
    try:
        data = json.loads(content.decode(), object_pairs_hook=_without_repeats)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict) or not isinstance(data.get("topics"), dict):
        raise ValueError("it is not an object with 'version' and 'topics'")
    version = data.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"version {version!r} is unknown, {VERSION} is supported")
    topics = {name: _parse_topic(name, entry) for name, entry in sorted(data["topics"].items())}
    gone = data.get("gone", [])
    if not isinstance(gone, list) or not all(isinstance(one, str) for one in gone):
        raise ValueError("'gone' is not a list of ids")
    return TopicsFile(topics, tuple(gone))


def _parse_topic(name: str, entry: object) -> TopicEntry:
    prefix = f"topic {ascii(name[:80])}"
    try:
        validate_topic(name)
        if not isinstance(entry, dict):
            raise ValueError("its entry is not an object")
        configs = entry.get("configs", {})
        if not isinstance(configs, dict):
            raise ValueError("'configs' is not an object")
        for key, value in configs.items():
            if not isinstance(value, str):
                raise ValueError(f"the setting {ascii(key[:80])} is not a string")
        if not isinstance(entry.get("id"), str):
            raise ValueError("'id' is missing or not a string")
        topic_id = check_topic_id(entry["id"])
        check_partitions(entry.get("partitions"))
        if not isinstance(entry.get("deleted", False), bool):
            raise ValueError("'deleted' is neither true nor false")
        LogConfig.from_stored(configs)
    except (InvalidTopic, InvalidPartitions, IllegalArgument, ConfigError) as error:
        raise ValueError(f"{prefix}: {error.message}") from None
    except ValueError as error:
        raise ValueError(f"{prefix}: {error}") from None
    return TopicEntry(name, topic_id, entry["partitions"], configs, entry.get("deleted", False))


def check_partitions(count: object) -> None:
    """Raise InvalidPartitions if a topic cannot have that many partitions."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_PARTITIONS:
        raise InvalidPartitions(f"the number of partitions is {count!r}, it must be 1 to {MAX_PARTITIONS}")


def check_new_partitions(count: object, existing: int = 0) -> None:
    """Raise InvalidPartitions if one call may not create a topic's partitions from `existing` up to `count`."""
    check_partitions(count)
    assert isinstance(count, int)
    if count - existing > MAX_PARTITIONS_AT_ONCE:
        raise InvalidPartitions(
            f"{count - existing} partitions are to be created, but one call creates at most {MAX_PARTITIONS_AT_ONCE}",
            hint="if that many are intended, add the others in further calls",
        )


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        repeated = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"{ascii(repeated[:80])} is repeated")
    return result
