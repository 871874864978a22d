"""The reference's dump tool: the text of a partition's files."""
