"""Options of commands that read or write backups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kafkalog.backup import RemoteBackups

recipient_option = click.option(
    "--recipient", "recipients", multiple=True, metavar="KEY",
    help="Encrypt for this age or SSH public key, or those in this file; repeatable. Needs a URL as TARGET.",
)  # fmt: skip
identity_option = click.option(
    "--identity", "identities", multiple=True, type=click.Path(), metavar="FILE",
    help="Decrypt with the private key in this file; repeatable.",
)  # fmt: skip


def backups_at(
    target: str, recipients: Sequence[str] = (), identities: Sequence[str] = (), staging: str | None = None
) -> str | RemoteBackups:
    """Return the target of backups with these options, which need a URL."""
    from kafkalog.backup import RemoteBackups
    from kafkalog.storage.remote import is_url

    if is_url(target) or recipients or identities or staging is not None:
        return RemoteBackups(target, recipients=recipients, identities=identities, staging=staging)
    return target
