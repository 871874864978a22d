"""The wire format: parse requests within limits and serialize responses, without sockets or logs."""
