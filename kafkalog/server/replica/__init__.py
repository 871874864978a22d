"""Partitions with their promises: roles, replicas, high watermarks, and requests that wait for them."""
