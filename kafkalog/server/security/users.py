"""Add a user while no server runs, such as the first one, who creates the others (`kafkalog serve --add-user`)."""

from __future__ import annotations

import os
import stringprep
import unicodedata
from collections.abc import Iterable
from typing import Final

from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.manager.known_topics import read_known_topics, topics_in
from kafkalog.manager.log_dir import LogDir
from kafkalog.server.security.file import SecurityFile, kept_by_broker, security_directory
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
    """Add the user `name` with this password, or change an existing user's password.

    The directory is created if missing. `others` are the server's further directories; users in a broker's metadata
    there are kept. IllegalArgument for a name or password that clients may send in different forms, and for two
    security files. IllegalState if the broker has changed its users since. DirectoryLocked while a server runs on the
    directory, where clients create users. CorruptCheckpoint, StorageError; errors of a broker's metadata.
    """
    prepared(name, "user's name")
    prepared(password, "password")
    keys = {mechanism: keys_of_password(mechanism, password, iterations) for mechanism in mechanisms}
    paths = [os.fspath(path) for path in (directory, *others)]
    owner_directory = security_directory(paths, fs=fs)
    with LogDir.acquire(owner_directory, fs=fs, create=True, exclusive=True):
        known = read_known_topics(paths, fs=fs)
        file = SecurityFile(owner_directory, fs=fs, before=lambda: kept_by_broker(known, topics_in(paths, fs)))
        state = file.read()
        file.write(state._replace(users={**state.users, name: {**state.users.get(name, {}), **keys}}))


def read_password(path: str | None = None, *, is_asked_for: bool = True) -> str:
    """Return a password: the first line of the file `path`, else KAFKALOG_PASSWORD of the environment, else a prompt.

    The prompt asks twice. IllegalArgument if there is no password, if the two differ, or if the file is not UTF-8 or
    too long; StorageError.
    """
    if path is not None:
        try:
            return OS.read_file(path, _MAX_PASSWORD_BYTES).decode().partition("\n")[0].rstrip("\r")
        except OSError as error:
            raise StorageError.from_os(error, "read the password", path=path) from error
        except ValueError:
            raise IllegalArgument("the password is not UTF-8, or longer than 4096 bytes", path=path) from None
    from_environment = os.environ.get(PASSWORD_VARIABLE)
    if from_environment is not None:
        return from_environment
    if not is_asked_for:
        raise IllegalArgument("no password is given", hint=f"set {PASSWORD_VARIABLE}, or give a file")
    from getpass import getpass

    first = getpass("Password: ")
    if getpass("Again: ") != first:
        raise IllegalArgument("the two passwords differ")
    return first


_PROHIBITED = (
    stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
    stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
    stringprep.in_table_c9, stringprep.in_table_a1,
)  # fmt: skip


def prepared(text: str, what: str) -> str:
    """Return the text if SASLprep (RFC 4013) leaves it as it is; IllegalArgument otherwise.

    Kafka's clients send a text unchanged, and others send its normal form; if both are equal, it works with all
    clients.
    """
    if not text:
        raise IllegalArgument(f"the {what} is empty")
    mapped = "".join(
        " " if stringprep.in_table_c12(letter) else letter for letter in text if not stringprep.in_table_b1(letter)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    if any(test(letter) for letter in normal for test in _PROHIBITED):
        raise IllegalArgument(f"the {what} has a control character or another one that text cannot contain")
    if any(map(stringprep.in_table_d1, normal)):
        if any(map(stringprep.in_table_d2, normal)):
            raise IllegalArgument(f"the {what} mixes letters of both directions")
        if not (stringprep.in_table_d1(normal[0]) and stringprep.in_table_d1(normal[-1])):
            raise IllegalArgument(f"the {what} is right-to-left, but does not start and end with such letters")
    if normal != text:
        raise IllegalArgument(
            f"the {what} is not in normal form: some clients would send a different text",
            hint="use plain letters, digits and signs",
        )
    return text
