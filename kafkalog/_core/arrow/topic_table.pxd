"""Topics by name: a small hash table in which the rows of a batch find theirs without a Python object."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from kafkalog._core.bytes.murmur cimport murmur2_of

cdef enum:
    FIRST_TOPICS = 8


cdef struct Topic:
    uint8_t* name
    int64_t name_size
    uint32_t hash
    int32_t partitions
    int64_t first_lane
    int64_t batch_bytes         # a batch closes before it is larger
    int64_t most_bytes          # a record whose own batch would be larger is refused; 0: none is
    int32_t sticky              # where the next record without a key goes
    int64_t stuck               # bytes that went there since it moved


cdef struct TopicTable:
    Topic* topics               # in the order in which they were met
    int64_t count
    int64_t room
    int32_t* slots              # their places by hash, -1: free
    int64_t slot_count          # a power of two, above twice the count; 0 at first


cdef inline void free_topics(TopicTable* t) noexcept nogil:
    cdef int64_t i
    for i in range(t.count):
        free(t.topics[i].name)
    free(t.topics)
    free(t.slots)


cdef inline bint is_named(const Topic* topic, const uint8_t* name, int64_t size) noexcept nogil:
    return topic.name_size == size and (size == 0 or memcmp(topic.name, name, <size_t>size) == 0)


cdef inline int64_t find_topic(const TopicTable* t, const uint8_t* name, int64_t size) noexcept nogil:
    """The place of a topic, -1 for one not met before."""
    cdef uint32_t hash = <uint32_t>murmur2_of(name, size)
    cdef int64_t slot
    cdef const Topic* topic
    if t.slot_count == 0:
        return -1
    slot = hash & (t.slot_count - 1)
    while t.slots[slot] >= 0:
        topic = &t.topics[t.slots[slot]]
        if topic.hash == hash and is_named(topic, name, size):
            return t.slots[slot]
        slot = (slot + 1) & (t.slot_count - 1)
    return -1


cdef inline void index_topic(TopicTable* t, int64_t place) noexcept nogil:
    """Puts a topic into the first free slot from its hash on."""
    cdef int64_t slot = t.topics[place].hash & (t.slot_count - 1)
    while t.slots[slot] >= 0:
        slot = (slot + 1) & (t.slot_count - 1)
    t.slots[slot] = <int32_t>place


cdef inline bint room_for_topic(TopicTable* t) noexcept nogil:
    """Room for one more topic; False without memory."""
    cdef int64_t want
    cdef int64_t i
    cdef void* memory
    if t.count == t.room:
        want = max(2 * t.room, FIRST_TOPICS)
        memory = realloc(t.topics, <size_t>want * sizeof(Topic))
        if memory == NULL:
            return False
        t.topics = <Topic*>memory
        t.room = want
    if 2 * (t.count + 1) > t.slot_count:
        want = max(2 * t.slot_count, 4 * FIRST_TOPICS)
        memory = malloc(<size_t>want * sizeof(int32_t))
        if memory == NULL:
            return False
        free(t.slots)
        t.slots = <int32_t*>memory
        t.slot_count = want
        memset(t.slots, 0xFF, <size_t>want * sizeof(int32_t))
        for i in range(t.count):
            index_topic(t, i)
    return True


cdef inline Topic* add_topic(TopicTable* t, const uint8_t* name, int64_t size) noexcept nogil:
    """A new topic with this name and nothing else set; NULL without memory."""
    cdef Topic* topic
    cdef uint8_t* copy
    if not room_for_topic(t):
        return NULL
    copy = <uint8_t*>malloc(<size_t>max(size, 1))
    if copy == NULL:
        return NULL
    memcpy(copy, name, <size_t>size)
    topic = &t.topics[t.count]
    memset(topic, 0, sizeof(Topic))
    topic.name = copy
    topic.name_size = size
    topic.hash = <uint32_t>murmur2_of(copy, size)
    t.count += 1
    index_topic(t, t.count - 1)
    return topic
