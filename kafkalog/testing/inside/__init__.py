"""Code inside the server processes of a test: control, faults, clock, disk."""
