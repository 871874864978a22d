"""A file system that counts what is read."""

from kafkalog.util.fileio import File, FileSystem


class Counting(FileSystem):
    """A file system that counts the bytes of each read."""

    def __init__(self) -> None:
        self.reads: list[int] = []

    def open_file(self, path: object, mode: str) -> File:
        return super().open_file(str(path), mode)

    def pread(self, fd: int, size: int, position: int) -> bytes:  # type: ignore[override]
        data = FileSystem.pread(fd, size, position)
        self.reads.append(len(data))
        return data
