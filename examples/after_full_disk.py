"""A disk filled up and the machine stopped: what is broken in the data directory, and how it is mended.

    python after_full_disk.py /var/lib/kafka                                    looks, and changes nothing
    python after_full_disk.py /var/lib/kafka --apply --backup /mnt/usb/before   mends, and keeps what was there

A full disk leaves batches and indexes that are cut short, and checkpoints that are empty. First it prints what is
wrong, then what has to be done about it. With `--apply` that is done, after all that is changed or goes was copied to
the backup, which had better be on another disk; then every record is decoded, and each partition's range of offsets is
printed. The exit status is 0 where the directory is sound at the end. Whatever wrote to the directory has to be
stopped, and some space free: delete something else first.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

import kafkalog

NEEDED_FREE_BYTES = 64 * 1024


def look(directory: Path) -> bool:
    """Prints what is wrong; True when nothing is."""
    report = kafkalog.verify(directory)
    for finding in report:
        print(f"{finding.severity.name.lower()}: {os.path.relpath(finding.path, directory)}: {finding.what}")
    print(f"{report.sums.records} records in {report.sums.segments} segments: {'sound' if report.ok else 'not sound'}")
    return report.ok


def mend(directory: Path, apply: bool, backup: Path | None) -> bool:
    """Prints what has to be done, or was done; True when nothing is left to do."""
    report = kafkalog.repair(directory, apply=apply, backup_dir=backup)
    print(report)
    return report.ok


def ranges(directory: Path) -> None:
    """Prints the offsets that each partition has now."""
    with kafkalog.open_dirs(directory) as dirs:
        for key in dirs:
            print(f"{key}: offsets {dirs[key].start_offset} to {dirs[key].end_offset}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Mend a data directory after its disk was full.")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("--apply", action="store_true", help="mend what is found")
    parser.add_argument("--backup", type=Path, metavar="DIR", help="where to keep what is changed: a new directory")
    arguments = parser.parse_args()
    if look(arguments.directory):
        return 0
    free = shutil.disk_usage(arguments.directory).free
    if arguments.apply and free < NEEDED_FREE_BYTES:
        print(f"only {free} bytes are free on this disk: make room first", file=sys.stderr)
        return 1
    if not mend(arguments.directory, arguments.apply, arguments.backup):
        return 1
    if not kafkalog.verify(arguments.directory, deep=True).ok:
        look(arguments.directory)
        return 1
    ranges(arguments.directory)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except kafkalog.KafkalogError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
