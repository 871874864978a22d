"""The items of a list or a map before its end: of those with the same key the last one stays."""
from kafkalog._core.values.nodes cimport Node


cdef int drop_earlier_keys(Node* map_node) noexcept nogil
