"""Code that handlers of requests share."""
