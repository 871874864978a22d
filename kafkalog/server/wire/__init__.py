"""Bytes of the protocol: requests read within bounds, responses written; no sockets and no logs."""
