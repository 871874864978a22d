"""Settings of servers, topics, groups and loggers, as clients read and change them."""
