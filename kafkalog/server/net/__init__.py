"""Sockets: listeners, connections and frames, independent of the contents of requests."""
