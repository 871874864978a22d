"""The parts of a log, each with one duty; `storage.log.UnifiedLog` holds them."""
