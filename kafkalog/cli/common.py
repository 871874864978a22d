"""Options and helpers that the commands share."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

_ISOLATION = "isolation.level"

Command = TypeVar("Command", bound=Callable[..., Any])


def dir_option(command: Command) -> Command:
    """-d/--dir, repeatable, defaulting to KAFKALOG_DIR (several joined by the path separator)."""
    return click.option(
        "-d",
        "--dir",
        "dirs",
        multiple=True,
        envvar="KAFKALOG_DIR",
        type=click.Path(),
        metavar="DIR",
        help="Data directory that holds <topic>-<partition> directories; repeats. [env: KAFKALOG_DIR]",
    )(command)


def topic_option(*, required: bool) -> Callable[[Command], Command]:
    """-t/--topic."""
    return click.option("-t", "--topic", required=required, metavar="TOPIC", help="Topic name.")


def partition_option(*, multiple: bool = False) -> Callable[[Command], Command]:
    """-p/--partition, once or repeatable."""
    return click.option(
        "-p",
        "--partition",
        "partitions" if multiple else "partition",
        multiple=multiple,
        type=click.IntRange(0, 2**31 - 1),
        metavar="N",
        help="Partition number" + ("; repeats. Default: all." if multiple else "."),
    )


def settings_option(command: Command) -> Command:
    """-X k=v, repeatable."""
    return click.option(
        "-X",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda ctx, param, given: parse_settings(given, "-X"),
        help="Setting, by Kafka's name, such as segment.bytes=104857600; repeats.",
    )(command)


def cursors_option(command: Command) -> Command:
    """--cursors, where positions are kept."""
    return click.option(
        "--cursors",
        envvar="KAFKALOG_CURSORS",
        type=click.Path(),
        metavar="DIR",
        help="Where positions are kept; by default in the user's state directory. [env: KAFKALOG_CURSORS]",
    )(command)


def isolation_option(command: Command) -> Command:
    """--isolation-level, by the consumer's names."""
    return click.option(
        "--isolation-level",
        metavar="LEVEL",
        help="read_uncommitted (the default): up to the end; read_committed: up to the last stable offset, without "
        "records of aborted transactions; high_watermark: up to the one in the data directory's checkpoint.",
    )(command)


def isolation_level(option: str | None, settings: dict[str, str] | None = None) -> str | None:
    """The level from --isolation-level or `-X isolation.level`; a usage error for another setting or another level."""
    from kafkalog.engine import isolation_of
    from kafkalog.errors import IllegalArgument
    from kafkalog.keywords import near

    level, flag = option, "--isolation-level"
    for name, value in (settings or {}).items():
        if name != "isolation.level":
            meant = f": did you mean {_ISOLATION}?" if near(name, (_ISOLATION,)) else f"; known is {_ISOLATION}"
            raise click.BadParameter(f"{name!r} is no setting of a reader here{meant}", param_hint="-X")
        if option is not None and option != value:
            raise click.BadParameter(f"{value!r} contradicts --isolation-level {option}", param_hint="-X " + name)
        level, flag = value, "-X isolation.level"
    try:
        isolation_of(level)
    except IllegalArgument as error:
        raise click.BadParameter(str(error), param_hint=flag) from None
    return level


def quiet_options(command: Command) -> Command:
    """-q and -v: `quiet` drops notes and progress, `verbose` adds detail."""
    command = click.option("-v", "verbose", count=True, help="Say more on stderr.")(command)
    return click.option("-q", "quiet", is_flag=True, help="No notes and no progress on stderr.")(command)


def parse_settings(given: Sequence[str], flag: str) -> dict[str, str]:
    """`name=value` arguments as a dict; click.BadParameter for one without `=` or given twice."""
    settings: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=flag)
        if name.strip() in settings:
            raise click.BadParameter(f"{name.strip()} is given twice", param_hint=flag)
        settings[name.strip()] = value
    return settings


def need_dirs(dirs: Sequence[str]) -> list[str]:
    """The data directories; a usage error where none is named, and FileNotFoundError for one that is not there."""
    if not dirs:
        raise click.UsageError("no data directory: give -d DIR, or set KAFKALOG_DIR")
    return [os.fspath(one) for one in dirs]


def note(text: str, *, quiet: bool = False) -> None:
    """A line on stderr, unless `quiet`."""
    if not quiet:
        print(text, file=sys.stderr, flush=True)


def set_verbosity(quiet: bool, verbose: int) -> None:
    """Lets warnings through by default, everything with -vv, nothing below errors with -q."""
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(stream=sys.stderr, level=level, format="kafkalog: %(message)s")


def unescape(text: str) -> str:
    r"""`text` with \n \t \r \0 \\ and \xHH read as C would, as in kcat's delimiters; BadParameter otherwise."""
    simple = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\":
            out.append(char)
            continue
        kind = text[at : at + 1]
        digits = text[at + 1 : at + 3]
        if kind in simple and kind:
            out.append(simple[kind])
            at += 1
        elif kind == "x" and len(digits) == 2 and all(d in "0123456789abcdefABCDEF" for d in digits):
            out.append(chr(int(digits, 16)))
            at += 3
        else:
            raise click.BadParameter(f"{text!r} has an escape that is not known: use \\n \\t \\r \\0 \\\\ \\xHH")
    return "".join(out)


def delimiter_bytes(text: str) -> bytes:
    r"""A delimiter as bytes: escapes read, \xHH one byte, other characters in UTF-8."""
    return b"".join(
        bytes([ord(char)]) if ord(char) < 256 and not char.isprintable() else char.encode() for char in unescape(text)
    )


def settings_text(settings: Mapping[str, str]) -> str:
    """`a=1,b=2`, by name."""
    return ",".join(f"{name}={value}" for name, value in sorted(settings.items()))


def plural(count: int, noun: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
