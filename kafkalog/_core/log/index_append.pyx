"""The index entries of a write, added to both indexes of its segment in one call.

`new_entries` is a list as `AppendPlan.entries`. Each file is written by one system call, where it is open and the
system's own; any other file, and any entry that an index refuses, goes through the index's own methods.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from kafkalog._core.log.slots cimport Slot, slot_get, slot_set

from os import pwrite as system_pwrite

cdef extern from "<unistd.h>" nogil:
    Py_ssize_t pwrite(int fd, const void* data, size_t size, int64_t position)

cdef enum:
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12

cdef struct IndexSlots:
    Slot lazy                       # of the segment
    Slot entries
    Slot read_only
    Slot file
    Slot last

cdef IndexSlots OFFSETS, TIMES      # a slot is looked up for one class
OFFSETS.lazy.name, TIMES.lazy.name = b"_offset_index", b"_time_index"
OFFSETS.entries.name = TIMES.entries.name = b"_entries"
OFFSETS.read_only.name = TIMES.read_only.name = b"_read_only"
OFFSETS.file.name = TIMES.file.name = b"_file"
OFFSETS.last.name, TIMES.last.name = b"_last_offset", b"_last"

cdef Slot TAIL, CHANGED, INDEX, HANDLE, LENGTH, RESERVED, IS_AS_KNOWN, PWRITE, FD
TAIL.name, CHANGED.name, INDEX.name = b"tail", b"_indexes_changed", b"index"
HANDLE.name, LENGTH.name, RESERVED.name, IS_AS_KNOWN.name = b"_file", b"length", b"reserved", b"is_as_known"
PWRITE.name, FD.name = b"_pwrite", b"_fd"


def write_indexed(segment, put, list new_entries not None, tail) -> None:
    """Append to a segment by `put()`, then the entries that this brings; `tail` is then the segment's.

    Space for the entries is reserved first. On any error the segment is as before.
    """
    before = slot_get(segment, &TAIL)
    offsets = opened(segment, &OFFSETS) or segment.offset_index
    times = opened(segment, &TIMES) or segment.time_index
    slot_set(segment, &CHANGED, True)
    try:
        reserve(offsets, &OFFSETS, len(new_entries), OFFSET_ENTRY)
        reserve(times, &TIMES, len(new_entries), TIME_ENTRY)
        put()
        if not extend_offsets(offsets, new_entries):
            offsets.extend(new_entries)
        if not extend_times(times, new_entries):
            times.extend(new_entries)
        slot_set(segment, &CHANGED, True)   # again: a flush meanwhile has synced what was there before
        slot_set(segment, &TAIL, tail)
    except BaseException:
        segment.revert(before)
        raise


cdef object opened(object segment, IndexSlots* slots):
    """The index, where it is open; else None."""
    lazy = slot_get(segment, &slots.lazy)
    return None if lazy is None else slot_get(lazy, &INDEX)


cdef int reserve(object index, IndexSlots* slots, Py_ssize_t more, Py_ssize_t size) except -1:
    """Reserve room for `more` entries, as `AbstractIndex.reserve` does."""
    cdef int64_t end = (<Py_ssize_t>slot_get(index, &slots.entries).count + more) * size
    if slot_get(index, &slots.read_only) or end > <int64_t>slot_get(slot_get(index, &slots.file), &RESERVED):
        index.reserve(more)
    return 0


def extend_offsets(index, list new_entries not None) -> bool:
    """True when an offset index got all entries, in one write; False, with nothing changed, where one is refused."""
    entries, file = slot_get(index, &OFFSETS.entries), slot_get(index, &OFFSETS.file)
    cdef Py_ssize_t count = entries.count
    cdef Py_ssize_t room = <Py_ssize_t>slot_get(file, &LENGTH) // OFFSET_ENTRY
    if not new_entries or slot_get(index, &OFFSETS.read_only) or count + len(new_entries) > room:
        return False
    packed = entries.packed(new_entries, slot_get(index, &OFFSETS.last) if count else -1)
    if packed is None:
        return False
    write(file, packed, count * OFFSET_ENTRY)
    entries.add(packed)
    slot_set(index, &OFFSETS.last, new_entries[len(new_entries) - 1][0])
    return True


def extend_times(index, list new_entries not None) -> bool:
    """True when a time index got all entries that have a time, in one write; its last slot stays free."""
    entries, file, last = (
        slot_get(index, &TIMES.entries), slot_get(index, &TIMES.file), slot_get(index, &TIMES.last)
    )
    cdef Py_ssize_t count = entries.count
    cdef Py_ssize_t room = <Py_ssize_t>slot_get(file, &LENGTH) // TIME_ENTRY
    if slot_get(index, &TIMES.read_only) or count + len(new_entries) >= room:
        return False
    packed = entries.packed(new_entries, last.timestamp, last.offset if count else -1)
    if packed is None:
        return False
    if packed:
        write(file, packed, count * TIME_ENTRY)
        entries.add(packed)
        slot_set(index, &TIMES.last, entries.entry(entries.count - 1))
    return True


cdef int write(object file, bytes entries, int64_t position) except -1:
    """Write to the file of an index; errors as `PreallocatedFile.write`."""
    cdef const char* data = PyBytes_AS_STRING(entries)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(entries)
    cdef Py_ssize_t written
    cdef int fd
    if position + size > <int64_t>slot_get(file, &RESERVED):
        file.reserve(position + size)
    slot_set(file, &IS_AS_KNOWN, False)
    handle = slot_get(file, &HANDLE)        # stays open while this reference is held
    if handle is not None and slot_get(handle, &PWRITE) is system_pwrite:
        fd = slot_get(handle, &FD)
        with nogil:
            written = pwrite(fd, data, <size_t>size, position)
        if written == size:
            return 0
    file.write(entries, position)
    return 0
