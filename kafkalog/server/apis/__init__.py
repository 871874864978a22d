"""What is answered to each call: one module a call, named as kio names it, without state of its own."""
