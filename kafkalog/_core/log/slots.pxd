"""Attributes in the slots of Python classes, without the interpreter's search for them."""

cdef extern from "kslot.h":
    ctypedef struct Slot "kl_slot":
        const char* name

    object slot_get "kl_slot_get" (object owner, Slot* slot)
    int slot_set "kl_slot_set" (object owner, Slot* slot, object value) except -1
