"""The group coordinator: who consumes what together, and how far each group has come."""
