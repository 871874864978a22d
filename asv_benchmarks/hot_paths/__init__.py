"""Hot paths: a file for each noun, whose functions make the bodies that are timed and counted."""

NOUNS = (
    "appending", "batches", "checksums", "cleaning", "codecs", "columns", "indexes", "keys", "opening", "producers",
    "reading", "values",
)  # fmt: skip
"""The files, in the order of the paths; `all` reads them."""
