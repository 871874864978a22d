"""The place of a partition's key indexes."""

from typing import ClassVar

from kafkalog.sidecars.place import SidecarPlace


class KeyIndexPlace(SidecarPlace):
    """The directory with the key indexes of one partition, `<base offset>.keyindex`."""

    __slots__ = ()

    suffix: ClassVar[str] = ".keyindex"
    noun: ClassVar[str] = "key index"
