"""Partitions and their guarantees: roles, replicas, high watermarks, and the requests that wait for them."""
