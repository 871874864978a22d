"""Leadership of a replica set: its members, the stored term, the decisions, and the calls between its nodes."""
