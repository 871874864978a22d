"""Errors of syncs, and conversion of the table formats' errors to kafkalog's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kafkalog.errors import KafkalogError, MissingPackage, StorageError


class TableMismatch(KafkalogError, ValueError):
    """The columns of a topic do not fit those of the table; `columns` has the names. Nothing was written."""

    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, table: str, columns: Sequence[tuple[str, str]], hint: str) -> TableMismatch:
        """Return the error for columns, each with the reason why it does not fit."""
        listed = "; ".join(f"{name} {reason}" for name, reason in columns)
        error = cls(f"the topic does not fit the table: {listed}", path=table, hint=hint)
        error.columns = tuple(name for name, _ in columns)
        return error


class TableChanged(KafkalogError, RuntimeError):
    """Another writer changed the table meanwhile; `before` and `after` are its snapshots (Delta: versions)."""

    retriable = True

    def __init__(self, message: str = "", *, before: str = "", after: str = "", **where: str) -> None:
        super().__init__(message, **where)  # type: ignore[arg-type]
        self.before = before
        self.after = after


def missing_package(what: str, error: ImportError) -> MissingPackage:
    """Return the error for a table format whose library is not installed."""
    return MissingPackage(f"{what} need more packages ({error})", hint="pip install 'kafkalog[lake]'")


@contextmanager
def store_errors(doing: str, table: str) -> Iterator[None]:
    """Raise StorageError in place of the errors of file systems, Arrow, catalogs and Delta in the block."""
    import pyarrow

    try:
        yield
    except KafkalogError:
        raise
    except OSError as error:
        raise StorageError.from_os(error, doing, path=table) from error
    except pyarrow.ArrowException as error:
        raise StorageError(f"cannot {doing}: {error}", path=table) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _LIBRARIES:
            raise
        raise StorageError(f"cannot {doing}: {type(error).__name__}: {error}", path=table) from error


_LIBRARIES = frozenset(("pyiceberg", "deltalake", "_internal", "sqlalchemy", "sqlite3", "requests", "botocore"))
