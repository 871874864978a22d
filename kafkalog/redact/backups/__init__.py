"""Redaction of backups: contents with wanted records are replaced, then the backup as a whole. See docs/redact.md."""
