"""Who leads a set of replicas: the set, the term that is kept, the decisions, and the calls between its nodes."""
