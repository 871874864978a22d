"""Sockets: listeners, connections and frames. Nothing here knows what a request means."""
