"""A schema registry: its REST interface, and its content in the topic `_schemas`."""
