"""Encryption of objects with age (age-encryption.org), whose own tools can decrypt them too."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import IO, Any, Final

from kafkalog.errors import CorruptBackup, IllegalArgument
from kafkalog.util.os_errors import os_errors
from kafkalog.util.packages import needed

SUFFIX: Final = ".age"
"""Suffix of the names of encrypted objects."""
_MAX_KEY_FILE_BYTES: Final = 1 << 20
_SECRET: Final = "AGE-SECRET-KEY-"


class Encryption:
    """Encrypts for `recipients`, which are public keys; decrypts with the private keys in the files `identities`.

    A recipient is `age1...`, an SSH public key, or a file with some of these, one a line. An identity file has lines
    `AGE-SECRET-KEY-1...`, as `age-keygen` writes it, or is an SSH private key. IllegalArgument, MissingPackage,
    StorageError. Threads: any.
    """

    def __init__(
        self, recipients: Iterable[str] = (), identities: Iterable[str | os.PathLike[str]] = ()
    ) -> None:
        given, files = tuple(recipients), tuple(identities)
        age = _age() if given or files else None
        found = {text: key for one in given for text, key in _recipients(age, one)}
        self._recipients = [*found.values()]
        self._identities = [key for one in files for key in _identities(age, os.fspath(one))]
        self.encrypts = bool(given)
        self.decrypts = bool(files)
        self.recipients_id = sha256("\n".join(sorted(found)).encode()).hexdigest()[:16]
        """Text that is the same for the same recipients, in any order."""

    def encrypt(self, source: IO[bytes], target: IO[bytes]) -> None:
        """Encrypt the rest of `source` into `target`. Errors of either."""
        first, second = _Watched(source), _Watched(target)
        try:
            _age().encrypt_io(first, second, self._recipients)
        except OSError as error:
            raise first.failure or second.failure or error from None

    def decrypt(self, source: IO[bytes], target: IO[bytes], url: str) -> None:
        """Decrypt the object `source` at `url` into `target`.

        CorruptBackup for an object that was changed or encrypted for other keys; IllegalArgument without identities.
        """
        if not self._identities:
            raise IllegalArgument("the object is encrypted", path=url, hint=_NEEDS_IDENTITY)
        first, second = _Watched(source), _Watched(target)
        try:
            _age().decrypt_io(first, second, self._identities)
        except _age().DecryptError as error:
            raise CorruptBackup(f"the object cannot be decrypted: {error}", path=url, hint=_OTHER_KEY) from None
        except OSError as error:
            failure = first.failure or second.failure
            if failure is not None:
                raise failure from None
            raise CorruptBackup(f"the object was changed or cut off: {error}", path=url, hint=_OTHER_BACKUP) from None


    def check_own(self) -> None:
        """Raise IllegalArgument if there are recipients but no identity can decrypt for any of them."""
        if not self.encrypts:
            return
        sealed = io.BytesIO()
        self.encrypt(io.BytesIO(b"test"), sealed)
        try:
            self.decrypt(io.BytesIO(sealed.getvalue()), io.BytesIO(), "")
        except (CorruptBackup, IllegalArgument):
            raise IllegalArgument(
                "no private key is given that decrypts for the recipients", hint=_NEEDS_IDENTITY
            ) from None


class _Watched:
    """A file that records the error of a failed call, since age would replace it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.failure: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        with self._watched():
            return self._file.read(size)

    def write(self, data: bytes) -> int:
        with self._watched():
            return self._file.write(data)

    def flush(self) -> None:
        with self._watched():
            self._file.flush()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.failure = error
            raise


_NEEDS_IDENTITY: Final = "give the private key: --identity FILE"
_OTHER_KEY: Final = (
    "give the private key of one of the backup's recipients: --identity FILE; if it shares contents with an earlier "
    "backup for other recipients, give the key of one of those as well"
)
_OTHER_BACKUP: Final = "use another backup: `kafkalog backup list` shows them"


def _age() -> Any:
    return needed("pyrage", "encrypted backups need more packages ({})", "encryption")


def _recipients(age: Any, given: str) -> Sequence[tuple[str, Any]]:
    """Return the public keys of a recipient, or of a file of recipients, each with its text without a comment."""
    if given.startswith(("age1", "ssh-")):
        return [(_text(given), _recipient(age, given, ascii(given[:80])))]
    text = _read(given, "recipients").decode(errors="replace")
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    found = [
        (_text(line), _recipient(age, line, f"line {number} of the file", given))
        for number, line in lines
        if line and not line.startswith("#")
    ]
    if not found:
        raise IllegalArgument("the file has no recipient", path=given, hint="give age1..., or a file with such lines")
    return found


def _text(line: str) -> str:
    return " ".join(line.split()[:2])


def _recipient(age: Any, text: str, name: str, path: str | None = None) -> Any:
    """Return a public key. Errors never quote a line of a file, which may hold private keys by mistake."""
    kind = age.ssh.Recipient if text.startswith("ssh-") else age.x25519.Recipient
    try:
        return kind.from_str(text)
    except age.RecipientError as error:
        raise IllegalArgument(
            f"{name} is not a recipient: {error}", path=path, hint="give age1..., or an SSH public key"
        ) from None


def _identities(age: Any, path: str) -> Sequence[Any]:
    """Return the private keys of a file. Errors never quote its content."""
    data = _read(path, "identity")
    lines = [line.strip() for line in data.decode(errors="replace").splitlines()]
    try:
        if any("PRIVATE KEY-----" in line for line in lines):
            return [age.ssh.Identity.from_buffer(data)]
        found = [age.x25519.Identity.from_str(line) for line in lines if line and not line.startswith("#")]
    except (age.IdentityError, ValueError):
        found = []
    if not found:
        raise IllegalArgument(
            "the file has no private key, or one with a passphrase", path=path, hint="create one: age-keygen -o FILE"
        )
    return found


def _read(path: str, what: str) -> bytes:
    if path.upper().startswith(_SECRET):
        raise IllegalArgument(
            f"a private key was given in place of a file with the {what}", hint="write the key to a file, and name it"
        )
    with os_errors(f"read the {what}", path), open(path, "rb") as file:
        return file.read(_MAX_KEY_FILE_BYTES)
