"""Request handlers: one stateless module for each call, with kio's name for it."""
