"""The self-test of `verify`: checksums of the compiled kernels beside those of another implementation."""

from __future__ import annotations

import zlib
from functools import cache
from typing import Final

from kafkalog._core.bytes import crc
from kafkalog.errors import IllegalState

_SAMPLE: Final = bytes(range(256)) * 40 + b"end"
_LENGTHS: Final = (3, 100, 700, len(_SAMPLE))  # each takes another way through the widest kernel


@cache  # once for each process: the processor and the build stay what they are
def check_checksums() -> None:
    """Raise IllegalState if a kernel's checksum differs from that of the `crc32c` package or of zlib.

    Such a processor, or such a build, would report sound batches as damaged.
    """
    import crc32c

    for size in _LENGTHS:
        data = _SAMPLE[:size]
        for name, ours, theirs in (
            ("CRC-32C", crc.crc32c(data), crc32c.crc32c(data)),
            ("CRC-32", crc.crc32(data), zlib.crc32(data)),
        ):
            if ours != theirs:
                raise IllegalState(
                    f"the kernel {crc.implementation()} computes the {name} {ours} of {size} bytes, "
                    f"another implementation {theirs}",
                    hint="set KAFKALOG_CPU=portable, which uses no special instructions, and check the machine",
                )
