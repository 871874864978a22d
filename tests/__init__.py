"""The tests; the folders mirror the package."""
