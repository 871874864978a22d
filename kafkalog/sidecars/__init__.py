"""Files that kafkalog keeps of a segment and could make again: where they lie, and whether they fit their segment."""
