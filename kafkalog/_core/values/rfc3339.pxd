"""Dates and times as RFC 3339 writes them."""
from libc.stdint cimport int64_t, uint8_t


cdef inline int two_digits(const uint8_t* s) noexcept nogil:
    """The number of two digits, -1 for others."""
    cdef unsigned int a = <unsigned int>s[0] - 48
    cdef unsigned int b = <unsigned int>s[1] - 48
    return <int>(10 * a + b) if a <= 9 and b <= 9 else -1


cdef inline int64_t days_of(int64_t year, int month, int day) noexcept nogil:
    """Days since 1970-01-01 of a day of the Gregorian calendar."""
    cdef int64_t y = year - (1 if month <= 2 else 0)
    cdef int64_t era = (y if y >= 0 else y - 399) // 400
    cdef int64_t in_era = y - era * 400
    cdef int64_t in_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + in_era * 365 + in_era // 4 - in_era // 100 + in_year - 719468


cdef inline int days_in(int year, int month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef inline bint read_date(const uint8_t* s, int64_t size, int64_t* days) noexcept nogil:
    """YYYY-MM-DD as days since 1970; False for anything else, and for days that the calendar does not have."""
    cdef int century
    cdef int year
    cdef int month
    cdef int day
    if size != 10 or s[4] != 45 or s[7] != 45:
        return False
    century = two_digits(s)
    year = two_digits(s + 2)
    month = two_digits(s + 5)
    day = two_digits(s + 8)
    if century < 0 or year < 0 or month < 1 or month > 12 or day < 1:
        return False
    year += 100 * century
    if day > days_in(year, month):
        return False
    days[0] = days_of(year, month, day)
    return True


cdef inline bint read_time(const uint8_t* s, int64_t size, int64_t* micros) noexcept nogil:
    """YYYY-MM-DDThh:mm:ss[.f…](Z|±hh:mm) as µs since 1970 in UTC; False for anything else.

    A space may stand for the T, small letters for large ones. Digits of a fraction past the sixth are left out. The
    second 60 is the first of the next minute.
    """
    cdef int64_t days = 0
    cdef int64_t fraction = 0
    cdef int64_t unit = 100000
    cdef int hour
    cdef int minute
    cdef int second
    cdef int away = 0
    cdef const uint8_t* end = s + size
    if size < 20 or not read_date(s, 10, &days) or (s[10] | 32) != 116 and s[10] != 32 or s[13] != 58 or s[16] != 58:
        return False
    hour = two_digits(s + 11)
    minute = two_digits(s + 14)
    second = two_digits(s + 17)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 60:
        return False
    s += 19
    if s[0] == 46:
        s += 1
        if s >= end or <uint8_t>(s[0] - 48) > 9:
            return False
        while s < end and <uint8_t>(s[0] - 48) <= 9:
            fraction += unit * (s[0] - 48)
            unit //= 10
            s += 1
    if end - s == 1 and (s[0] | 32) == 122:
        away = 0
    elif end - s == 6 and (s[0] == 43 or s[0] == 45) and s[3] == 58:
        if two_digits(s + 1) < 0 or two_digits(s + 1) > 23 or two_digits(s + 4) < 0 or two_digits(s + 4) > 59:
            return False
        away = 60 * two_digits(s + 1) + two_digits(s + 4)
        if s[0] == 45:
            away = -away
    else:
        return False
    micros[0] = ((days * 1440 + 60 * hour + minute - away) * 60 + second) * 1000000 + fraction
    return True
