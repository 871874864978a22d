"""Bytes as base64, as hexadecimal and as a JSON string, into a place the caller has reserved."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    static const char kl_base64[65] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static const char kl_hex[17] = "0123456789abcdef";
    /* 0: as it is; u: a \\u escape; any other: the letter behind the backslash */
    static const unsigned char kl_json[128] = {
        'u','u','u','u','u','u','u','u','b','t','n','u','f','r','u','u',
        'u','u','u','u','u','u','u','u','u','u','u','u','u','u','u','u',
        0,0,'"',0,0,0,0,0,0,0,0,0,0,0,0,0, 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,
        0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0, 0,0,0,0,0,0,0,0,0,0,0,0,'\\\\',0,0,0,
        0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0, 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0
    };
    """
    const char* kl_base64
    const char* kl_hex
    const unsigned char* kl_json


cdef enum:
    JSON_EXPANSION = 6          # bytes of the longest escape: \u00xx
    PLAIN_EXPANSION = 2         # hexadecimal; base64 takes four for three, and up to two of padding


cdef inline uint8_t* put_base64(uint8_t* d, const uint8_t* s, size_t n) noexcept nogil:
    """Standard alphabet with padding: 4 * ceil(n / 3) characters."""
    cdef uint32_t group
    while n >= 3:
        group = (<uint32_t>s[0] << 16) | (<uint32_t>s[1] << 8) | s[2]
        d[0] = kl_base64[group >> 18]
        d[1] = kl_base64[(group >> 12) & 63]
        d[2] = kl_base64[(group >> 6) & 63]
        d[3] = kl_base64[group & 63]
        d += 4
        s += 3
        n -= 3
    if n == 0:
        return d
    group = <uint32_t>s[0] << 16
    if n == 2:
        group |= <uint32_t>s[1] << 8
    d[0] = kl_base64[group >> 18]
    d[1] = kl_base64[(group >> 12) & 63]
    d[2] = kl_base64[(group >> 6) & 63] if n == 2 else 61
    d[3] = 61
    return d + 4


cdef inline uint8_t* put_hex(uint8_t* d, const uint8_t* s, size_t n) noexcept nogil:
    """Two lower-case digits for each byte."""
    cdef size_t i
    for i in range(n):
        d[2 * i] = kl_hex[s[i] >> 4]
        d[2 * i + 1] = kl_hex[s[i] & 15]
    return d + 2 * n


cdef inline uint8_t* put_json_string(uint8_t* d, const uint8_t* s, size_t n) noexcept nogil:
    """Well-formed UTF-8 between quotes; only what JSON demands is escaped."""
    cdef size_t i
    cdef uint8_t letter
    d[0] = 34
    d += 1
    for i in range(n):
        letter = kl_json[s[i]] if s[i] < 0x80 else 0
        if letter == 0:
            d[0] = s[i]
            d += 1
            continue
        d[0] = 92
        d[1] = letter
        d += 2
        if letter == 117:
            d[0] = 48
            d[1] = 48
            d[2] = kl_hex[s[i] >> 4]
            d[3] = kl_hex[s[i] & 15]
            d += 4
    d[0] = 34
    return d + 1
