"""Copies between clusters, directories, backups and tiered stores."""
