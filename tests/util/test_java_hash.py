"""Java's hash code of a string, which says where a coordinator keeps a group or a transaction."""

from kafkalog.util.java_hash import java_hash, partition_of


def test_hash_codes_are_those_of_java() -> None:
    # "polygenelubricants" is the well-known string whose hash code is Integer.MIN_VALUE
    assert java_hash("") == 0
    assert java_hash("hello") == 99162322
    assert java_hash("group") == 98629247
    assert java_hash("polygenelubricants") == 1 << 31
    assert java_hash("\U0001f600") == 31 * 0xD83D + 0xDE00  # two units of UTF-16
    assert java_hash("𝄞") == 1772394


def test_partitions_are_never_negative() -> None:
    assert partition_of("hello", 50) == 22
    assert partition_of("polygenelubricants", 50) == 0
    negative = next(text for text in (letter * 7 for letter in "abcdefghijklmnop") if java_hash(text) >= 1 << 31)
    assert partition_of(negative, 7) == ((1 << 32) - java_hash(negative)) % 7
