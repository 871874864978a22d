"""Recipients of an encrypted store: an object beside the marker for each set of them, kafkalog.objects.recipients-ID.

A content is stored once for all backups. One that an earlier backup has is not encrypted again, so a backup for other
recipients could not be restored with their keys alone.
"""

from __future__ import annotations

from typing import Final

from kafkalog.backup.remote.encryption import SUFFIX, Encryption
from kafkalog.backup.remote.objects import MARKER, StoredObjects
from kafkalog.errors import CorruptBackup, IllegalArgument

_PREFIX: Final = f"{MARKER}.recipients-"


def check_recipients(objects: StoredObjects, encryption: Encryption) -> None:
    """Note the recipients of a new backup; the caller has the store's lease. StorageError.

    IllegalArgument if its contents are encrypted for others, and no private key is given that opens a backup there.
    """
    own, names = f"{_PREFIX}{encryption.recipients_id}", objects.times()
    if not encryption.encrypts or own in names:
        return
    if objects.sums(encrypted=True):
        is_other = any(name.startswith(_PREFIX) for name in names)  # else an earlier version wrote there
        if not (_opens_one(objects) if encryption.decrypts else not is_other):
            raise IllegalArgument(
                "the contents of the store are encrypted for other recipients, and are not encrypted again",
                path=objects.url,
                hint="use another URL for the new keys; or give the former private key too, which a restore then needs "
                "as well: --identity FILE",
            )  # fmt: skip
    objects.put_note(own, b"")


def _opens_one(objects: StoredObjects) -> bool:
    """Return True if the private keys open the manifest of an encrypted backup."""
    for _, names in sorted(objects.all_manifest_names().items(), reverse=True):
        for name in names:
            if name.endswith(SUFFIX):
                try:
                    objects.manifest_bytes(name)
                    return True
                except CorruptBackup:
                    continue
    return False
