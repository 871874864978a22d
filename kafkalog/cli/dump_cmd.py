"""`kafkalog dump`: segment files as the reference's dump tool prints them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from kafkalog._version import version
from kafkalog.cli import common
from kafkalog.cli.decoder_options import schemas_option

if TYPE_CHECKING:
    from kafkalog.tools.dump.options import DumpOptions
    from kafkalog.tools.dump.record_readers import RecordReader
    from kafkalog.util.fileio import FileSystem

    class _Given(TypedDict):
        """Values of the command's options."""

        deep_iteration: bool
        print_data_log: bool
        skip_record_metadata: bool
        index_sanity_check: bool
        verify_index_only: bool
        max_bytes: int | None
        max_message_size: int
        offsets_decoder: bool
        transaction_log_decoder: bool
        cluster_metadata_decoder: bool
        share_group_state_decoder: bool
        remote_log_metadata_decoder: bool
        key_decoder_class: str | None
        value_decoder_class: str | None
        schemas: str | None
        tiered: str | None
        as_json: bool

_PLAIN = "string"


def _paths(
    arguments: tuple[str, ...], listed: tuple[str, ...], tiered: str | None
) -> tuple[FileSystem, list[str]]:
    """Return the named files, in order, and their file system.

    --files takes comma-separated names, a directory stands for its files; with a tiered store all are directories.
    """
    from kafkalog.storage.readonly.listing import no_segments
    from kafkalog.tools.dump.files import files_of
    from kafkalog.util.fileio import OS

    given = [name for names in listed for name in names.split(",") if name] + list(arguments)
    if not given:
        raise click.UsageError("no file: name files of a partition directory, or the directory")
    fs: FileSystem = OS
    if tiered is not None:
        if not all(os.path.isdir(name) for name in given):
            raise click.UsageError("--tiered is for whole partitions: name their directories")
        fs, given = common.locate_dirs(given, tiered)
    paths: list[str] = []
    for name in given:
        found = [one for one in files_of(name, fs=fs) if fs.exists(one)] if os.path.isdir(name) else [name]
        if not found:
            raise no_segments(fs, name)
        paths += found
    return fs, paths


def _reader(given: Mapping[str, Any]) -> Callable[[], RecordReader | None] | None:
    """Return a function that creates the decoder of the flags; None without such a flag."""
    named = (value for name, value in given.items() if name.endswith(("_decoder", "_decoder_class")))
    if all(value is None or value is False for value in named):
        return None
    from kafkalog.tools.dump import record_readers

    for flag, make in (
        ("offsets_decoder", record_readers.offsets_reader),
        ("transaction_log_decoder", record_readers.transaction_log_reader),
        ("cluster_metadata_decoder", record_readers.cluster_metadata_reader),
        ("remote_log_metadata_decoder", record_readers.remote_log_metadata_reader),
        ("share_group_state_decoder", record_readers.share_state_reader),
    ):
        if given[flag]:
            return make
    key, value = given["key_decoder_class"], given["value_decoder_class"]
    return partial(record_readers.decoder_reader, key, value, given["schemas"])


def _decoder_flag(name: str, topic: str) -> Callable[[common.Command], common.Command]:
    return click.option(name, is_flag=True, help=f"Decode the records as those of {topic}.")


def _decoder_class(name: str, what: str) -> Callable[[common.Command], common.Command]:
    return click.option(
        name,
        is_flag=False,
        flag_value=_PLAIN,
        metavar="[NAME]",
        help=f"Decoder of {what}: string (default), integer, long, bytes, json, a pack string as in kcat, avro, "
        "protobuf or jsonschema (with --schemas), module:function, or a decoder class of Kafka.",
    )


@click.command("dump")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE | DIRECTORY]...")
@click.option("--files", "listed", multiple=True, metavar="F1,F2,...", help="Comma-separated files.")
@click.option("--deep-iteration", is_flag=True, help="Also print the records of each batch.")
@click.option("--print-data-log", is_flag=True, help="Print the records with keys and values.")
@click.option("--skip-record-metadata", is_flag=True, help="Print only the key and value of a record.")
@click.option("--index-sanity-check", is_flag=True, help="Only check the indexes, without the log.")
@click.option("--verify-index-only", is_flag=True, help="Compare indexes with the log, and print no entries.")
@click.option("--max-bytes", type=int, metavar="N", help="Read at most the first N bytes of a .log file.")
@click.option(
    "--max-message-size",
    type=int,
    default=5 << 20,
    show_default=True,
    metavar="N",
    help="Size in bytes of the largest batch that an index entry may point to.",
)
@_decoder_flag("--offsets-decoder", "__consumer_offsets")
@_decoder_flag("--transaction-log-decoder", "__transaction_state")
@_decoder_flag("--cluster-metadata-decoder", "__cluster_metadata")
@_decoder_flag("--share-group-state-decoder", "__share_group_state")
@_decoder_flag("--remote-log-metadata-decoder", "__remote_log_metadata")
@_decoder_class("--key-decoder-class", "keys")
@_decoder_class("--value-decoder-class", "values")
@schemas_option
@common.tiered_option
@common.json_option("Print one JSON object for each batch, record and entry.")
@click.version_option(version, message="%(version)s")
def command(files: tuple[str, ...], listed: tuple[str, ...], **given: Unpack[_Given]) -> None:
    """Print files of partition directories in the format of Kafka's dump tool.

    A partition directory stands for all of its files. Files are opened for reading only. Errors in an index, and
    offsets that are not consecutive, are reported on stderr.

    Example: kafkalog dump --print-data-log data/orders-0/00000000000000000000.log
    """
    from kafkalog.tools.dump.files import dump_files

    fs, paths = _paths(files, listed, given["tiered"])
    try:
        dump_files(paths, sys.stdout.buffer, _options(given), err=sys.stderr.buffer, as_json=given["as_json"], fs=fs)
    finally:
        sys.stdout.buffer.flush()


def _options(given: _Given) -> DumpOptions:
    from kafkalog.tools.dump.options import DumpOptions

    max_bytes = given["max_bytes"]
    return DumpOptions(
        deep_iteration=given["deep_iteration"],
        print_data_log=given["print_data_log"],
        skip_record_metadata=given["skip_record_metadata"],
        verify_index_only=given["verify_index_only"],
        index_sanity_check=given["index_sanity_check"],
        max_bytes=None if max_bytes == 2**31 - 1 else max_bytes,
        max_message_size=given["max_message_size"],
        reader=_reader(given),
    )
