"""`kafkalog redact`: empty records by key, by condition or by offset; a dry run by default."""

from __future__ import annotations

import base64
import binascii
import os
from typing import TYPE_CHECKING, Any, Unpack

import click

from kafkalog.cli import backup_options, common
from kafkalog.cli.decoder_options import DecoderGiven, keywords_for, schema_options, serdes_option
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    class RedactOptions(DecoderGiven):
        """Values of the options of `redact`."""

        dirs: tuple[str, ...]
        topic: str
        partitions: tuple[int, ...]
        dry_run: bool
        keys: tuple[str, ...]
        key_files: tuple[str, ...]
        key_encoding: str
        where: str | None
        offsets: tuple[str, ...]
        change: str | None
        erase_key: bool
        remove_kept: bool
        store: str | None
        tiered: str | None
        backups: str | None
        recipients: tuple[str, ...]
        identities: tuple[str, ...]
        staging: str | None

redact_options = common.options(
    common.dir_option,
    common.topic_option(required=True),
    common.partition_option(multiple=True),
    common.apply_option,
    click.option("--key", "keys", multiple=True, metavar="KEY", help="Records with this key; repeatable."),
    click.option(
        "--keys", "key_files", multiple=True, type=click.Path(), metavar="FILE", help="Keys in a file, one a line."
    ),
    click.option(
        "--key-encoding", type=click.Choice(["utf8", "base64", "hex"]), default="utf8", show_default=True,
        help="Encoding of the keys given.",
    ),
    click.option("--where", metavar="EXPR", help="Records for which the condition is true (docs/where.md)."),
    serdes_option("Decoder for paths of --where, such as value=json; repeatable."),
    schema_options,
    click.option(
        "--offsets", multiple=True, metavar="LIST|FILE",
        help="Records at PARTITION:OFFSET, such as 0:17,2:4, or a file of these; repeatable.",
    ),
    click.option(
        "--with", "change", type=click.Choice(["tombstone", "empty"]),
        help="Null values, or values of 0 bytes. Default: tombstone if the topic is compacted, else empty.",
    ),
    click.option("--erase-key", is_flag=True, help="Empty the keys too; not for compacted topics."),
    click.option("--remove-kept", is_flag=True, help="Also remove what recovery kept of such records."),
    click.option(
        "--store", type=click.Path(), metavar="DIR", help="Directory of the key indexes. Default: beside the segments."
    ),
    click.option(
        "--tiered", metavar="URL|FILE",
        help="Also redact the topic's tiered segments: URL of their store, or a file that describes it.",
    ),
    click.option("--backups", type=click.Path(), metavar="TARGET", help="Redact these backups, and no -d DIR."),
    backup_options.identity_option,
    backup_options.recipient_option,
    click.option(
        "--staging", type=click.Path(), metavar="DIR", help="With a URL: download segments to this new directory."
    ),
    common.json_option("Print one JSON object for each segment, and one for the report."),
    common.quiet_options,
)  # fmt: skip
"""The options of `redact`."""


@click.command("redact")
@redact_options
def command(as_json: bool, **given: Unpack[RedactOptions]) -> int:
    """Redact records: empty their values and remove their headers, in place.

    A record is redacted if --key, --keys, --where or --offsets names it. Offsets, timestamps, producers, transactions,
    formats and codecs stay, so consumers and brokers go on as before. Only segments with such records are rewritten,
    and a crash leaves each segment old or new. What the command cannot reach is listed: docs/redact.md.

    Dry run by default; --apply makes the changes and then searches again for proof. --apply locks the data directory,
    so no broker may run on it. A log that was not closed cleanly is recovered first if it has anything to redact.

    With --tiered each tiered segment with such records is replaced by a new one, and __remote_log_metadata, in the
    data directory, gets the events of that.

    With --backups all backups in TARGET, a directory or the URL of an object store, are redacted in place.

    Example: kafkalog redact -d data -t orders --key customer-17 --apply

    Example: kafkalog redact -d data -t orders --key customer-17 --tiered tiered.json --apply

    Example: kafkalog redact --backups /backups/kafka -t orders --key customer-17 --apply

    Exit status: 0 fine, 1 a key or offset without a record, records left, or damage, 2 wrong usage.
    """
    from kafkalog.redact.backups.redact import redact_backups
    from kafkalog.redact.directories import redact
    from kafkalog.redact.wanted import parse_offsets
    from kafkalog.where import parse

    keys = _keys_of(given["keys"], given["key_files"], given["key_encoding"])
    offsets: dict[int, list[int]] = {}
    for one in given["offsets"]:
        with common.usage_of("--offsets"):
            for partition, found in parse_offsets(_text_of(one)).items():
                offsets.setdefault(partition, []).extend(found)
    where = given["where"]
    if where is not None:
        with common.usage_of("--where"):
            parse(where)
    if not keys and not offsets and where is None:
        raise click.UsageError("no records are named: give --key, --keys, --where or --offsets")
    _check_places(given)
    named: dict[str, Any] = {
        "keys": keys, "offsets": offsets, "where": where, "typed": _typed(where, given),
        "partitions": given["partitions"], "change": given["change"], "erase_key": given["erase_key"],
        "apply": not given["dry_run"],
    }  # fmt: skip
    with Meter("redact", None) as meter:
        named["progress"] = meter.add if meter.shown else lambda size: None
        if given["backups"] is not None:
            target = backup_options.backups_at(
                given["backups"], given["recipients"], given["identities"], given["staging"]
            )
            report = redact_backups(target, given["topic"], **named)
        else:
            report = redact(
                common.need_dirs(given["dirs"]), given["topic"], remove_kept=given["remove_kept"],
                key_index=given["store"], tiered=given["tiered"], **named,
            )  # fmt: skip
    return common.print_report(report, as_json=as_json)


def _check_places(given: RedactOptions) -> None:
    """Raise a usage error for options of data directories with --backups, and for those of backups without it."""
    named: dict[str, object]
    if given["backups"] is None:
        named = {"--recipient": given["recipients"], "--identity": given["identities"], "--staging": given["staging"]}
        reason = "{} needs --backups TARGET, the URL of an object store."
    else:
        named = {
            "-d": given["dirs"], "--remove-kept": given["remove_kept"], "--store": given["store"],
            "--tiered": given["tiered"],
        }  # fmt: skip
        reason = "{} is for data directories; --backups has none."
    for option, value in named.items():
        if value:
            raise click.UsageError(reason.format(option))


def _keys_of(given: tuple[str, ...], files: tuple[str, ...], encoding: str) -> list[bytes]:
    """Return the keys of --key and of the lines of --keys, decoded; a usage error for one that does not decode."""
    texts = [(one.encode("utf-8", "surrogateescape"), "--key") for one in given]
    for name in files:
        texts += [(line.removesuffix(b"\r"), "--keys") for line in _content(name).split(b"\n") if line.strip()]
    keys = []
    for text, flag in texts:
        try:
            if encoding == "hex":
                text = bytes.fromhex(text.decode())
            elif encoding == "base64":
                text = base64.b64decode(text, validate=True)
            keys.append(text)
        except (ValueError, binascii.Error):
            raise click.BadParameter(f"{text[:60]!r} is not {encoding}", param_hint=flag) from None
    return keys


def _text_of(given: str) -> str:
    """Return a list of offsets: the text itself, or the content of the file of that name."""
    return _content(given).decode("utf-8", "replace") if os.path.exists(given) else given


def _content(name: str) -> bytes:
    try:
        with open(name, "rb") as file:
            return file.read()
    except OSError as error:
        raise click.FileError(name, error.strerror or str(error)) from None


def _typed(where: str | None, given: RedactOptions) -> dict[str, Any]:
    """Return the decoders that the condition needs, as keywords of `log.scan`; what does not decode is an error."""
    if where is None:
        return {}
    from kafkalog.where import parse

    found = keywords_for(parse(where).typed_roots, given)
    return {name: one for name, one in found.items() if one is not None and name != "on_undecodable"}
