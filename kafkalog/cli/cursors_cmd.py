"""`kafkalog offsets groups|reset|delete`: stored positions, by name."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

import click

from kafkalog.cli import common

if TYPE_CHECKING:
    from kafkalog.cursors.store import CursorStore
    from kafkalog.errors import KafkalogError
    from kafkalog.server.groups.stored import StoredGroups
    from kafkalog.storage.readonly.view import LogView
    from kafkalog.types import TopicPartition

    _Row = dict[str, str | int | None]
    _Target = Literal["to_earliest", "to_latest", "to_offset", "to_datetime", "shift_by"]

    class _Reset(TypedDict):
        """Values of the options of `reset`."""

        dirs: tuple[str, ...]
        topic: str
        partitions: tuple[int, ...]
        group: str
        to_earliest: bool
        to_latest: bool
        to_offset: Any  # these three: None, or an int, a str, an int
        to_datetime: Any
        shift_by: Any
        execute: bool
        dry_run: bool
        cursors: str | None

_COLUMNS: Final = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "COMMITTED")
_FIELDS: Final = ("group", "topic", "partition", "current_offset", "log_end_offset", "lag", "committed_ms")
_TARGETS: Final[tuple[_Target, ...]] = ("to_earliest", "to_latest", "to_offset", "to_datetime", "shift_by")


@click.command("groups")
@common.dir_option
@common.topic_option()
@common.group_option("Only cursors and groups of this name.")
@common.json_option("Print one JSON object for each cursor.")
@common.cursors_option
@common.quiet_options
def groups(
    dirs: tuple[str, ...], topic: str | None, group: str | None, as_json: bool, cursors: str | None
) -> None:
    """Show the positions that readers store by name, and their lag.

    Groups that a server or a broker stored in the directory are included. A last column then shows the kind of each
    row, including share and streams groups of a broker; groups without offsets that can be shown have one line. If the
    topic of these groups is damaged, the positions before the damage are shown, and the exit status is 1.

    Example: kafkalog offsets groups -d data -G billing
    """
    from kafkalog.server.groups.stored import read_groups

    given_dirs = common.need_dirs(dirs)
    found = read_groups(given_dirs)
    damage = found.damage
    rows, kept = _rows(given_dirs, cursors), _group_rows(given_dirs, found)
    if kept:
        rows = [row | {"kept": "cursor"} for row in rows] + kept
        rows.sort(key=lambda row: (row["group"], row["topic"] or "", row["partition"] or 0, row["kept"]))
    rows = [row for row in rows if _is_selected(row, topic, group)]
    if as_json:
        for row in rows:
            print(json.dumps(row))
    elif rows:
        _print_table([(*_COLUMNS, "KEPT") if kept else _COLUMNS, *(_cells(row) for row in rows)])
    if damage:
        _note_damage(damage[:-1])
        common.note("note: offsets that groups committed after the damage are not shown")
        raise damage[-1]


def _note_damage(damage: list[KafkalogError]) -> None:
    for error in damage:
        common.note(f"kafkalog: {error}", always=True)


def _rows(dirs: list[str], cursors: str | None) -> list[_Row]:
    """Return a row for each cursor; offsets are None if the partition is missing, or no longer has them."""
    from kafkalog.cursors.store import CursorStore

    store = CursorStore(cursors)
    rows = []
    for directory in dirs:
        for path in store.partitions(directory):
            end, start = _ends(path)
            for name in store.names(path):
                state = store.read(path, name)
                if state is not None:
                    place = state.topic_partition
                    rows.append(_row(name, place, state.position, state.committed_ms, start, end))
    return sorted(rows, key=lambda row: (row["group"], row["topic"], row["partition"]))


def _group_rows(dirs: list[str], found: StoredGroups) -> list[_Row]:
    """Return a row for each committed offset of a group in these directories, and one for groups without any."""
    from kafkalog.tools.directories import partitions
    from kafkalog.types import TopicPartition

    committed = {TopicPartition(topic, partition) for _, topic, partition in found.committed}
    ends = {place: _ends(path) for place, path in partitions(dirs) if place in committed} if committed else {}
    rows = []
    for (group, topic, partition), one in found.committed.items():
        place = TopicPartition(topic, partition)
        end, start = ends.get(place, (None, None))
        row = _row(group, place, one.offset, one.commit_ms, start, end)
        rows.append(row | {"kept": found.kinds.get(group, "group")})
    without = found.kinds.keys() - {group for group, _, _ in found.committed}
    rows += [dict.fromkeys(_FIELDS) | {"group": group, "kept": found.kinds[group]} for group in without]
    return rows


def _row(
    group: str, place: TopicPartition, position: int, committed_ms: int, start: int | None, end: int | None
) -> _Row:
    is_in_log = start is not None and end is not None and start <= position <= end
    return {
        "group": group,
        "topic": place.topic,
        "partition": place.partition,
        "current_offset": position,
        "log_end_offset": end,
        "lag": end - position if is_in_log and end is not None else None,
        "committed_ms": committed_ms,
    }


def _ends(path: str) -> tuple[int | None, int | None]:
    from kafkalog.errors import NotAPartition, PartitionNotFound
    from kafkalog.storage.readonly.view import LogView

    try:
        with LogView(path) as view:
            return view.log_end_offset, view.log_start_offset
    except (PartitionNotFound, NotAPartition):
        return None, None


def _is_selected(row: _Row, topic: str | None, group: str | None) -> bool:
    return topic in (None, row["topic"]) and group in (None, row["group"])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    from kafkalog.inspect.values import moment

    values = dict(row)
    committed_ms = values.pop("committed_ms")
    kept = [values.pop("kept")] if "kept" in values else []
    when = moment(None if committed_ms is None else committed_ms // 1000 * 1000)
    return (*("-" if one is None else str(one) for one in values.values()), when, *kept)


def _print_table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@click.command("reset")
@common.dir_option
@common.topic_option(required=True)
@common.partition_option(multiple=True)
@common.group_option("Name of the cursor or group.", required=True)
@click.option("--to-earliest", is_flag=True, help="Move to the log start.")
@click.option("--to-latest", is_flag=True, help="Move to the log end.")
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="Move to this offset.")
@click.option("--to-datetime", metavar="TIME", help="Move to the first record at or after TIME: ms or ISO-8601.")
@click.option("--shift-by", type=int, metavar="N", help="Move N offsets forward, or back if N is negative.")
@click.option("--execute", "--apply", "execute", is_flag=True, help="Make the changes; without it, only show them.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done (default).")
@common.cursors_option
@common.quiet_options
def reset(**given: Unpack[_Reset]) -> None:
    """Move a reader's position; dry run by default.

    A new offset outside the log becomes the nearest end of the log. The command prints GROUP TOPIC:PARTITION OLD NEW
    for each partition. The reader must not be running. If the name is a group of a server or a broker, that group is
    moved instead of a cursor, and the server or broker must not be running either. Only a broker can move its share
    and streams groups.

    Example: kafkalog offsets reset -d data -G billing -t orders --to-earliest --apply
    """
    from kafkalog.cursors.store import CursorStore
    from kafkalog.server.groups.stored import commit_in, read_groups
    from kafkalog.storage.readonly.view import LogView
    from kafkalog.tools.directories import find

    targets = [target for target in _TARGETS if given[target] is not None and given[target] is not False]
    if len(targets) != 1:
        raise click.UsageError("give one of --to-earliest, --to-latest, --to-offset, --to-datetime and --shift-by")
    if given["execute"] and given["dry_run"]:
        raise click.UsageError("--execute and --dry-run contradict each other: give one")
    store, dirs, group = CursorStore(given["cursors"]), common.need_dirs(given["dirs"]), given["group"]
    committed, kinds, damage = read_groups(dirs)
    _note_damage(damage)
    if group in kinds:
        raise _broker_group_error(group, kinds[group], "--reset-offsets")
    is_group = any(key[0] == group for key in committed)
    moved = {}
    with ExitStack() as stack:
        for topic_partition, path in find(dirs, given["topic"], given["partitions"]):
            view = stack.enter_context(LogView(path))
            if is_group:
                one = committed.get((group, *topic_partition))
                old = None if one is None else one.offset
                new = moved[topic_partition] = _new_position(view, targets[0], given, old)
            else:
                old, new = _move(store, view, targets[0], given)
            shown = "-" if old is None else str(old)
            print(f"{group} {topic_partition.topic}:{topic_partition.partition} {shown} {new}")
    if moved and given["execute"]:
        commit_in(dirs, group, moved, time.time_ns() // 1_000_000)
    if not given["execute"]:
        common.note("nothing was changed; --execute makes the changes")


def _broker_group_error(group: str, kind: str, option: str) -> KafkalogError:
    from kafkalog.errors import IllegalState

    text = f"{ascii(group)} is a {kind} group of a broker, which only the broker can change"
    return IllegalState(text, hint=f"start the broker, and run kafka-{kind}-groups {option}")


def _move(store: CursorStore, view: LogView, target: _Target, given: _Reset) -> tuple[int | None, int]:
    """Return the (old, new) position; with --execute, store the new one."""
    from kafkalog.cursors.cursor import Options, open_cursor
    from kafkalog.errors import CorruptCheckpoint

    name = given["group"]
    try:
        state = store.read(view.path, name)
    except CorruptCheckpoint as error:
        common.note(f"note: {error}")
        state = None
        if given["execute"]:
            store.acquire(view.path, name).delete()
    old = None if state is None else state.position
    new = _new_position(view, target, given, old)
    if given["execute"]:
        with open_cursor(view, name, Options(reset="earliest", auto_commit_ms=None), store=store.root) as cursor:
            cursor.seek(new)
            cursor.commit()
    return old, new


def _new_position(view: LogView, target: _Target, given: _Reset, old: int | None) -> int:
    from kafkalog.errors import IllegalArgument

    if target == "shift_by" and old is None:
        name = given["group"]
        raise IllegalArgument(f"cursor {name} of {view.name} has no position to shift", hint="use another option")
    return min(max(_target_offset(view, target, given, old or 0), view.log_start_offset), view.log_end_offset)


def _target_offset(view: LogView, target: _Target, given: _Reset, old: int) -> int:
    if target == "to_earliest":
        return view.log_start_offset
    if target == "to_offset":
        return int(given["to_offset"])
    if target == "shift_by":
        return old + int(given["shift_by"])
    if target == "to_datetime":
        found = view.offset_for_time(common.parse_time(given["to_datetime"], "--to-datetime"))
        return view.log_end_offset if found is None else found.offset
    return view.log_end_offset


@click.command("delete")
@common.dir_option
@common.topic_option()
@common.group_option("Name of the cursor.", required=True)
@common.cursors_option
@common.quiet_options
def delete(
    dirs: tuple[str, ...], topic: str | None, group: str, cursors: str | None
) -> None:
    """Delete the stored positions of a name, for one topic or for all.

    The command prints GROUP TOPIC:PARTITION for each deleted position.

    Example: kafkalog offsets delete -d data -G billing -t orders
    """
    from kafkalog.cursors.store import CursorStore
    from kafkalog.errors import UnknownTopicOrPartition
    from kafkalog.server.groups.stored import read_groups

    store = CursorStore(cursors)
    found = False
    for directory in common.need_dirs(dirs):
        for path in store.partitions(directory):
            if group not in store.names(path):
                continue
            file = store.acquire(path, group)
            topic_partition = file.topic_partition
            if topic not in (None, topic_partition.topic):
                file.release()
                continue
            found = file.delete() or found
            print(f"{group} {topic_partition.topic}:{topic_partition.partition}")
    if not found:
        hint = "`kafkalog offsets groups` lists the existing ones"
        committed, kinds, damage = read_groups(common.need_dirs(dirs))
        _note_damage(damage)
        if group in kinds:
            raise _broker_group_error(group, kinds[group], "--delete")
        if any(key[0] == group for key in committed):
            hint = "it is a group of a server: delete it with kafka-consumer-groups --delete or another admin client"
        raise UnknownTopicOrPartition(f"there is no cursor {group}", path=store.root, hint=hint)
