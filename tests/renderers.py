"""The dump tool's renderer with an unpacker of its own, as the tool makes it."""

from typing import Any

from kafkalog._core.text.render import DumpText
from kafkalog.records.compression import new_unpacker


def dump_text(**options: Any) -> DumpText:
    return DumpText(unpacker=new_unpacker(), **options)
