"""One server without its sockets: its directories, topics and parts."""
