"""Restores at a moment: each staged partition is cut back to what its log held at that time. See docs/backup.md."""
