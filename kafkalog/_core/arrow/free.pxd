"""Destructors of the capsules of the Arrow PyCapsule interface: a struct that no consumer took is released, then freed."""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdlib cimport free

from kafkalog._core.arrow.abi cimport ArrowArray, ArrowSchema


cdef inline void free_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef inline void free_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)
