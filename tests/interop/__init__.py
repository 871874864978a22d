"""The real Kafka beside us: our Java programs, their driver, and the tests that compare.

`pytest tests/interop -m "not slow"` needs a JDK (17 or newer) and, the first time on a machine, Maven.
"""
