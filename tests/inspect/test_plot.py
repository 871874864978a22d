"""`log.plot()`: which pictures, from which figures; files, notebooks, and wrong names."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.inspect.plot import KINDS, plot
from tests.golden_cases import Case, each_partition

TIME = 1_795_176_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with kafkalog.open(tmp_path / "data" / "orders-0", "a") as log:
        for n in range(20):
            log.append([(b"$k_%d" % (i % 7), b"v" * 50, TIME + 1000 * n) for i in range(50)], compression="lz4")
            if n % 5 == 4:
                log.roll()
    return tmp_path / "data" / "orders-0"


def titles(figure: object) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")]  # type: ignore[attr-defined]


def test_all_that_there_is_something_in(folder: Path) -> None:
    with kafkalog.open(folder) as log:
        found = log.plot()
        assert found.kinds == ("rate", "segments", "batches", "compression", "keys", "index")
        assert titles(found.figure) == [
            "Rate over time", "Size by segment", "Batches by size", "Compression ratio", "Most frequent keys",
            "Index density",
        ]  # fmt: skip
        assert log.plot("dirty").kinds == ("dirty",) and log.plot(*KINDS).kinds == KINDS
        assert repr(log.plot("rate", "rate")) == "<LogPlot orders-0: rate; .save(path) writes it>"


def test_it_draws_the_figures(folder: Path) -> None:
    with kafkalog.open(folder) as log:
        stats = log.stats(keys=True)
        kinds = ("segments", "batches", "keys")
        segments, batches, keys = (log.plot(kind, stats=stats).figure.axes[0] for kind in kinds)
    assert [bar.get_height() for bar in segments.patches] == [one.size for one in stats.segments]
    assert [bar.get_height() for bar in batches.patches] == [one.number for one in stats.batch_sizes.octaves()]
    assert stats.keys is not None
    assert [bar.get_width() for bar in keys.patches] == [one.records / 1000 for one in stats.keys.top]


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_files_and_notebooks(folder: Path, tmp_path: Path, ending: str) -> None:
    with kafkalog.open(folder) as log:
        found = log.plot("rate", "keys")
        found.save(tmp_path / f"plot.{ending}")
        assert (tmp_path / f"plot.{ending}").stat().st_size > 1000
        assert found._repr_png_().startswith(b"\x89PNG")
        with pytest.raises(StorageError, match="write the plot"):
            found.save(tmp_path / "nowhere" / "plot.png")


@each_partition("logdir", "legacy", where=lambda case: case.name in (
    "pub-empty-0", "pub-edge-0", "pub-cbefore-0", "pub-txn-0", "old-v0-none-0"))  # fmt: skip
def test_logs_of_a_broker(case: Case) -> None:
    with kafkalog.open(case.directory) as log:
        assert log.plot()._repr_png_() and log.plot(*KINDS)._repr_png_()


def test_a_sample_is_told(folder: Path) -> None:
    with kafkalog.open(folder) as log:
        found = plot(log.stats(sample_bytes=1000))
        assert "sampled: " in found.figure.get_suptitle()


def test_a_picture_that_there_is_not(folder: Path) -> None:
    with kafkalog.open(folder) as log:
        with pytest.raises(IllegalArgument, match="unknown plot 'batch'.*did you mean 'batches'"):
            log.plot("batch")


def test_keys_that_no_font_has_warn_of_nothing(tmp_path: Path) -> None:
    """A warning is an error here; in a notebook it stands above the picture."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(key.encode(), b"v", TIME) for key in ("\u0be6", "caf\u00e9", "$\U0001fb00")])
        found = log.plot("keys")
        assert found._repr_png_().startswith(b"\x89PNG")
    labels = {label.get_text() for label in found.figure.axes[0].get_yticklabels()}
    assert labels == {"\\u0be6", "caf\u00e9", "\\$\\U0001fb00"}
