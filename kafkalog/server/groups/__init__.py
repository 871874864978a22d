"""The group coordinator: group membership, partition assignment and committed offsets."""
