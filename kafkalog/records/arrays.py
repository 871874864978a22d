"""Import numpy for the functions that need it, inside them: `from kafkalog.records.arrays import numpy`."""

from kafkalog.errors import MissingPackage

try:
    import numpy
except ImportError as error:
    raise MissingPackage(
        f"columns, figures and searches need numpy, which cannot be imported here ({error})", hint="pip install numpy"
    ) from None

__all__ = ["numpy"]
