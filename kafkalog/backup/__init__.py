"""Backups of data directories in use: create, list, verify, restore, delete. See docs/backup.md."""

from kafkalog.backup.create import BackupReport as BackupReport
from kafkalog.backup.create import create_backup as create_backup
from kafkalog.backup.create import delete_backups as delete_backups
from kafkalog.backup.create import list_backups as list_backups
from kafkalog.backup.manifest import Manifest as Manifest
from kafkalog.backup.remote.backups import RemoteBackups as RemoteBackups
from kafkalog.backup.restore import restore_backup as restore_backup
from kafkalog.backup.restore import restore_directories as restore_directories
from kafkalog.backup.verify import verify_backup as verify_backup

__all__ = [
    "BackupReport", "Manifest", "RemoteBackups", "create_backup", "delete_backups", "list_backups", "restore_backup",
    "restore_directories", "verify_backup",
]  # fmt: skip
