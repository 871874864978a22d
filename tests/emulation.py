"""Whether a processor is emulated here (ci/test_aarch64.sh)."""

import os


def emulated() -> bool:
    """Whether the processor is a program: 5 to 9 times slower, so properties are tried on fewer examples."""
    return os.environ.get("KAFKALOG_EMULATED", "") not in ("", "0")
