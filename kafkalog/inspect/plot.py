"""Plots of a log with matplotlib, which is imported on first use."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.errors import IllegalArgument, MissingPackage
from kafkalog.inspect.series import average_runs, axis_end, rates
from kafkalog.inspect.stats import LogStats
from kafkalog.inspect.width import cut, escape_bytes, escape_text
from kafkalog.util.os_errors import os_errors
from kafkalog.util.text import human_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_MAX_COLUMNS: Final = 400
_MAX_KEYS: Final = 10
_A, _B, _C, _DIM = "#2f6fde", "#0d8a7f", "#c2620a", "#8a94a3"


def _rate(axes: Axes, stats: LogStats) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    series = rates(stats.spans)
    if series is None:
        return _draw_message(axes, "no record has a timestamp")
    from kafkalog.records.arrays import numpy

    edges = series.start_ms + series.step_ms * numpy.arange(len(series.records) + 1)
    times = edges.astype("int64").astype("datetime64[ms]")
    axes.stairs(series.records, times, fill=True, color=_A, alpha=0.25)
    axes.stairs(series.records, times, color=_A, linewidth=1.4)
    axes.set_ylabel("records/s", color=_A)
    axes.set_ylim(bottom=0)
    other = axes.twinx()
    other.stairs(series.bytes, times, color=_B, linewidth=1.2)
    other.set_ylabel("bytes/s", color=_B)
    other.set_ylim(bottom=0)
    other.tick_params(labelsize=8)
    _format_bytes_axis(other.yaxis, max(series.bytes))
    other.spines[["top"]].set_visible(False)
    locator = AutoDateLocator(maxticks=6)  # type: ignore[no-untyped-call,unused-ignore]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call,unused-ignore]
    return None


def _segments(axes: Axes, stats: LogStats) -> None:
    runs = average_runs([one.size for one in stats.segments], _MAX_COLUMNS)
    if not any(mean for _, _, mean in runs):
        return _draw_message(axes, "all segments are empty")
    _columns(axes, [mean for _, _, mean in runs], _A)
    axes.set_xlabel(f"{len(stats.segments):,} segments, oldest first")
    return None


def _batches(axes: Axes, stats: LogStats) -> None:
    steps = stats.batch_sizes.octaves()
    if not steps:
        return _draw_message(axes, "no batches")
    axes.bar(range(len(steps)), [one.number for one in steps], width=1, align="edge", color=_A, edgecolor="white")
    ticks = range(0, len(steps) + 1, max(1, -(-len(steps) // 8)))
    labels = [human_size(steps[at].low) if at < len(steps) else human_size(steps[-1].high) for at in ticks]
    axes.set_xticks(list(ticks), labels, rotation=20)
    axes.set_ylabel("batches")
    return None


def _compression(axes: Axes, stats: LogStats) -> None:
    known = [one for one in stats.codecs if one.ratio is not None]
    if not known:
        return _draw_message(axes, "no known ratio")
    _bars(axes, [(one.codec, one.ratio or 0.0, f"{one.ratio:.2f} : 1, {human_size(one.bytes)}") for one in known], _B)
    axes.axvline(1, color=_DIM, linewidth=1, linestyle="--")
    return None


def _keys(axes: Axes, stats: LogStats) -> None:
    keys = stats.keys
    if keys is None or not keys.distinct:
        return _draw_message(axes, "no record has a key")
    top = keys.top[:_MAX_KEYS]
    total = max(keys.records, 1)
    names = [_escape_missing_glyphs(cut(escape_bytes(one.key), 24)).replace("$", r"\$") for one in top]
    shares = [one.records / total for one in top]
    _bars(axes, [(name, share, f"{share:.1%}") for name, share in zip(names, shares, strict=True)], _A)
    least = "" if keys.is_whole else "at least "
    axes.set_xlabel(f"share of the records; {least}{keys.distinct:,} keys")
    return None


def _dirty(axes: Axes, stats: LogStats) -> None:
    dirty = stats.dirty
    if dirty is None:
        return _draw_message(axes, "not known to be compacted")
    rows = [("clean", dirty.clean_bytes, human_size(dirty.clean_bytes)),
            ("dirty", dirty.dirty_bytes, f"{human_size(dirty.dirty_bytes)}, {dirty.ratio:.1%}")]  # fmt: skip
    _bars(axes, rows, _C)
    _format_bytes_axis(axes.xaxis, max(dirty.clean_bytes, dirty.dirty_bytes))
    return None


def _index(axes: Axes, stats: LogStats) -> None:
    known = [one.bytes_per_entry for one in stats.indexes if one.bytes_per_entry]
    if not known:
        return _draw_message(axes, "no index has an entry")
    runs = average_runs(known, _MAX_COLUMNS)
    _columns(axes, [mean for _, _, mean in runs], _B)
    axes.set_xlabel("bytes from one index entry to the next, by segment")
    return None


_PLOTS: Final[dict[str, tuple[str, Callable[[Axes, LogStats], None]]]] = {
    "rate": ("Rate over time", _rate),
    "segments": ("Size by segment", _segments),
    "batches": ("Batches by size", _batches),
    "compression": ("Compression ratio", _compression),
    "keys": ("Most frequent keys", _keys),
    "dirty": ("Dirty ratio", _dirty),
    "index": ("Index density", _index),
}
KINDS: Final = tuple(_PLOTS)
"""Names of the plots."""


class LogPlot:
    """Plots of a log: `figure` is matplotlib's Figure, `save(path)` writes it, a notebook displays it."""

    __slots__ = ("figure", "kinds", "stats")

    def __init__(self, stats: LogStats, kinds: tuple[str, ...], figure: Figure) -> None:
        self.stats = stats
        self.kinds = kinds
        self.figure = figure

    def save(self, path: str | os.PathLike[str], *, dpi: int = 150) -> None:
        """Write the figure; the file extension selects the format (png, svg, pdf). Raises StorageError."""
        with os_errors("write the plot", path):
            self.figure.savefig(path, dpi=dpi)

    def _repr_png_(self) -> bytes:
        from io import BytesIO

        out = BytesIO()
        self.figure.savefig(out, format="png", dpi=110)
        return out.getvalue()

    def __repr__(self) -> str:
        return f"<LogPlot {self.stats.name}: {', '.join(self.kinds)}; .save(path) writes it>"


def check_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    """Return the requested plots, all if none is named; raise IllegalArgument for an unknown name."""
    for kind in kinds:
        if kind not in _PLOTS:
            from difflib import get_close_matches

            matches = get_close_matches(str(kind), KINDS, n=1)
            suggestion = f"did you mean {matches[0]!r}? " if matches else ""
            raise IllegalArgument(f"unknown plot {kind!r}", hint=f"{suggestion}the plots are {', '.join(KINDS)}")
    return tuple(dict.fromkeys(kinds)) or KINDS


def plot(stats: LogStats, kinds: Sequence[str] = ()) -> LogPlot:
    """Return the named plots of a log's statistics in one figure; without names, those that have data.

    Raises MissingPackage if matplotlib is not installed, IllegalArgument for an unknown plot.
    """
    chosen = check_kinds(kinds)
    if not kinds:
        empty = {"dirty": stats.dirty is None, "keys": stats.keys is None or not stats.keys.distinct}
        chosen = tuple(kind for kind in chosen if not empty.get(kind))
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackage(
            f"plot() needs matplotlib ({error}); `kafkalog report` needs no matplotlib",
            hint="pip install 'kafkalog[viz]'",
        ) from None
    columns = min(len(chosen), 2)
    rows = -(-len(chosen) // columns)
    figure = Figure(figsize=(6.2 * columns, 3.1 * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(rows, columns)
    for at, kind in enumerate(chosen):
        is_last_alone = at == len(chosen) - 1 and columns == 2 and at % 2 == 0
        axes = figure.add_subplot(grid[-1, :] if is_last_alone else grid[at // columns, at % columns])
        title, draw = _PLOTS[kind]
        axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
        draw(axes, stats)
    note = stats.sampled()
    name = escape_text(stats.name) + (f"\n{note}" if note else "")
    figure.suptitle(name, x=0.01, ha="left", fontsize=12 if not note else 10)
    return LogPlot(stats, chosen, figure)


def _escape_missing_glyphs(text: str) -> str:
    """Escape characters that no matplotlib font has: otherwise matplotlib warns and draws boxes."""
    if text.isascii():
        return text
    from matplotlib.font_manager import FontProperties, findfont, get_font

    families = FontProperties().get_family()
    fonts = [get_font(findfont(FontProperties(family=[name]))) for name in families]
    return "".join(
        char if any(font.get_char_index(ord(char)) for font in fonts) else ascii(char)[1:-1] for char in text
    )


def _bars(axes: Axes, rows: Sequence[tuple[str, float, str]], color: str) -> None:
    """Draw horizontal bars, the first at the top, each with its label."""
    axes.barh(range(len(rows)), [value for _, value, _ in rows], color=color, height=0.7)
    axes.set_yticks(range(len(rows)), [name for name, _, _ in rows])
    axes.invert_yaxis()
    most = max((value for _, value, _ in rows), default=0) or 1
    axes.set_xlim(0, most * 1.3)
    for at, (_, value, text) in enumerate(rows):
        axes.text(value + most * 0.01, at, text, va="center", fontsize=8, color="#444444")


def _columns(axes: Axes, sizes: Sequence[float], color: str) -> None:
    """Draw vertical columns of bytes; a few columns do not fill the axes."""
    axes.bar(range(len(sizes)), sizes, width=0.8, color=color)
    axes.set_xlim(-0.7, max(len(sizes) - 0.3, 7.7))
    axes.set_xticks([])
    _format_bytes_axis(axes.yaxis, max(sizes))


def _format_bytes_axis(axis: Axis, most: float) -> None:
    """Format an axis of bytes, with a tick at each quarter of a power of two."""
    end = axis_end(most, binary=True)
    axis.set_ticks([end * part / 4 for part in range(5) if end * part / 4 <= most * 1.3])
    axis.set_major_formatter(_bytes)


def _draw_message(axes: Axes, why: str) -> None:
    axes.text(0.5, 0.5, why, ha="center", va="center", color=_DIM, transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def _bytes(value: float, place: object) -> str:
    return human_size(round(value))
