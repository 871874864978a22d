"""Detection of an emulated processor (ci/test_aarch64.sh)."""

import os


def emulated() -> bool:
    """Return True on an emulated processor: 5 to 9 times slower, so properties run fewer examples."""
    return os.environ.get("KAFKALOG_EMULATED", "") not in ("", "0")
