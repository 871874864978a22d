"""A user is added while no server runs: the first one, who makes the others (`kafkalog serve --add-user`)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.manager.known_topics import read_known_topics, topics_in
from kafkalog.manager.log_dir import LogDir
from kafkalog.server.security.file import SecurityFile, kept_by_broker, security_directory
from kafkalog.server.security.prepared import prepared
from kafkalog.server.security.scram import keys_of_password
from kafkalog.server.security.state import MECHANISMS, MIN_ITERATIONS
from kafkalog.util.fileio import OS, FileSystem

PASSWORD_VARIABLE: Final = "KAFKALOG_PASSWORD"
_MAX_PASSWORD_BYTES: Final = 4096


def add_user(
    directory: str | os.PathLike[str],
    name: str,
    password: str,
    *,
    mechanisms: Iterable[str] = tuple(MECHANISMS),
    iterations: int = MIN_ITERATIONS,
    others: Iterable[str | os.PathLike[str]] = (),
    fs: FileSystem = OS,
) -> None:
    """Let `name` log in with this password; one who is there gets another password.

    The directory is made where it is missing; `others` are the server's further ones, in which a broker may have kept
    its users: they stay. IllegalArgument for a name or password that not every client sends
    alike or for two security files, IllegalState if the broker has changed its users since, DirectoryLocked while a
    server runs on it (its users are made by clients), CorruptCheckpoint, StorageError; errors of a broker's metadata.
    """
    prepared(name, "user's name")
    prepared(password, "password")
    keys = {mechanism: keys_of_password(mechanism, password, iterations) for mechanism in mechanisms}
    paths = [os.fspath(path) for path in (directory, *others)]
    place = security_directory(paths, fs=fs)
    with LogDir.acquire(place, fs=fs, create=True, exclusive=True):
        known = read_known_topics(paths, fs=fs)
        file = SecurityFile(place, fs=fs, before=lambda: kept_by_broker(known, topics_in(paths, fs)))
        state = file.read()
        file.write(state._replace(users={**state.users, name: {**state.users.get(name, {}), **keys}}))


def read_password(path: str | None = None, *, is_asked_for: bool = True) -> str:
    """A password: the first line of the file `path`, else the environment's KAFKALOG_PASSWORD, else asked for, twice.

    IllegalArgument where there is none, or the two differ; StorageError.
    """
    if path is not None:
        try:
            return OS.read_file(path, _MAX_PASSWORD_BYTES).decode().partition("\n")[0].rstrip("\r")
        except OSError as error:
            raise StorageError.from_os(error, "read the password", path=path) from error
        except ValueError:
            raise IllegalArgument("the password is no UTF-8, or longer than 4096 bytes", path=path) from None
    given = os.environ.get(PASSWORD_VARIABLE)
    if given is not None:
        return given
    if not is_asked_for:
        raise IllegalArgument("no password is given", hint=f"set {PASSWORD_VARIABLE}, or name a file")
    from getpass import getpass

    first = getpass("Password: ")
    if getpass("Again: ") != first:
        raise IllegalArgument("the two passwords differ")
    return first
