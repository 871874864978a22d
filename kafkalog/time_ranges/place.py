"""The place of a partition's time ranges."""

from typing import ClassVar

from kafkalog.sidecars.place import SidecarPlace


class TimeRangesPlace(SidecarPlace):
    """The directory with the time ranges of one partition, `<base offset>.timeranges`."""

    __slots__ = ()

    suffix: ClassVar[str] = ".timeranges"
    noun: ClassVar[str] = "time ranges"
