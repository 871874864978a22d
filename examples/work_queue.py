"""A queue of tasks on disk, and workers that take them: as many processes as you like, any of which may be killed.

    python work_queue.py data put "resize 1.png" "resize 2.png"       prints how many tasks were put
    python work_queue.py data work --until-empty                      prints each task that is done

Tasks lie in the partitions of the topic `tasks`. A worker takes a partition by opening its cursor, which only one
process can have open; it does the tasks in order and commits the cursor after each. When a worker is killed its cursor
is free at once and another worker goes on behind the last commit: no task is lost, and none that was committed is done
again. The one in hand is done once more, so a task should bear that.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import kafkalog

PARTITIONS = 4
LOOK_AGAIN_S = 0.1


def put(directory: Path, tasks: list[str]) -> None:
    """Spreads the tasks over the partitions; they are on disk when this returns."""
    with kafkalog.open_dirs(directory, "a", sync=True) as dirs:
        if "tasks" not in dirs.topics:
            # a setting of the topic, which is kept: no program that opens the directory later lets tasks expire
            dirs.create_topic("tasks", PARTITIONS, {"retention.ms": -1})
        logs = dirs.logs("tasks")
        first = sum(log.end_offset for log in logs)  # go on with the next partition: tasks may come one by one
        for number in range(min(len(tasks), len(logs))):
            log = logs[(first + number) % len(logs)]
            log.append([task.encode() for task in tasks[number :: len(logs)]])


def do(task: str, seconds: float) -> None:
    """The work itself: here it only takes its time."""
    time.sleep(seconds)


def work_on(log: kafkalog.Log, cursors: Path, seconds: float) -> int | None:
    """Process the tasks of one partition; return their number, or None if another worker has it."""
    done = 0
    try:
        cursor = log.cursor("workers", store=cursors, auto_commit_ms=None)
    except kafkalog.CursorInUse:
        return None
    with cursor:
        for record in cursor:
            task = (record.value or b"").decode()
            do(task, seconds)
            cursor.commit()
            print(f"done {task} ({log.name} {record.offset}) by {os.getpid()}", flush=True)
            done += 1
    return done


def work(directory: Path, cursors: Path, seconds: float, until_empty: bool) -> None:
    """Goes from partition to partition, for ever or until all are found free and empty."""
    with kafkalog.open_dirs(directory) as dirs:
        while True:
            done = [work_on(log, cursors, seconds) for log in dirs.logs("tasks")]
            if until_empty and all(count == 0 for count in done):
                return
            if not any(done):
                time.sleep(LOOK_AGAIN_S)


def main() -> None:
    parser = argparse.ArgumentParser(description="A queue of tasks on disk.")
    parser.add_argument("directory", type=Path, metavar="DIR")
    commands = parser.add_subparsers(dest="command", required=True)
    putting = commands.add_parser("put", help="add tasks")
    putting.add_argument("tasks", nargs="+", metavar="TASK")
    working = commands.add_parser("work", help="do tasks")
    working.add_argument("--until-empty", action="store_true", help="end when none is left")
    working.add_argument("--seconds", type=float, default=0.0, help="how long a task takes")
    arguments = parser.parse_args()
    if arguments.command == "put":
        put(arguments.directory, arguments.tasks)
        print(f"{len(arguments.tasks)} tasks put")
        return
    directory = arguments.directory.resolve()
    cursors = directory.with_name(directory.name + ".cursors")
    work(directory, cursors, arguments.seconds, arguments.until_empty)


if __name__ == "__main__":
    try:
        main()
    except kafkalog.KafkalogError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
