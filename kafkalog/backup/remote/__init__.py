"""Backups in object stores (S3, GCS, Azure, SFTP, ...), through fsspec. See docs/backup.md.

An object's name is the SHA-256 sum of the file that it holds, so each file's content is stored once for all backups.
A backup exists as soon as its manifest does, which is uploaded last and whole. So however a run ends, the backups in
the store stay complete.
"""
