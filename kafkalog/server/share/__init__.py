"""Share partitions (KIP-932): records in flight, their stored state, and members' sessions."""
