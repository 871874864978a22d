"""Permission cases need a user whom permissions stop: when the suite runs as root, they run as the user nobody."""

import contextlib
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def _nobody() -> tuple[int, int]:
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        return 65534, 65534
    return entry.pw_uid, entry.pw_gid


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Inside, this process has no right but a plain user's (the whole process: do not start threads in it).

    What is to be imported has to be imported before, since root's own directories may be closed to others.
    """
    if os.geteuid() != 0:
        yield
        return
    user, group = _nobody()
    groups, own_group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(group)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(own_group)
        os.setgroups(groups)


@contextlib.contextmanager
def plain_directory() -> Iterator[Path]:
    """A fresh directory that the user of `unprivileged` owns and can reach (pytest's own is closed to others)."""
    path = Path(tempfile.mkdtemp(prefix="kafkalog-plain-"))
    try:
        if os.geteuid() == 0:
            os.chown(path, *_nobody())
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
