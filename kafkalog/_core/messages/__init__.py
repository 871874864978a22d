"""Messages of the protocol and of internal topics, read and written by the plan of their fields."""
