"""The figures of growth: three plots for each operation, as SVG, and a line of text for each."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from asv_benchmarks.measure import quantile

IMAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "images"
COMPUTED = (4, 8, 16)
QUARTER = 25
LOCAL = ("append", "scan", "decode", "verify", "clean")
SERVED = ("produce", "fetch")
_A, _DIM = "#2f6fde", "#8a94a3"


def speedup(found: Mapping[str, Any], name: str) -> float:
    """Return how much faster two threads, or two processes of a server, are than one: the fastest quarter of rounds.

    A thread that waits for the interpreter's lock also waits while its holder waits for a processor, so that other work
    on the machine can only make two threads look slower.
    """
    if name in SERVED:
        taken = found["workers"][name]
        return float(taken["1"] / taken["2"])
    one, two = (quantile([each[1] for each in found["threads"][name][count]], QUARTER) for count in ("1", "2"))
    return float(one / two)


def serial_part(of_two: float) -> float:
    """Return the part that does not get faster with processors, by Amdahl's law, from the speed of two."""
    return min(1.0, max(0.0, 2 / of_two - 1))


def computed(of_two: float, processors: int) -> float:
    """Return the speed with that many processors, by Amdahl's law."""
    serial = serial_part(of_two)
    return 1 / (serial + (1 - serial) / processors)


def draw(found: Mapping[str, Any]) -> Iterator[str]:
    """Draw a figure for each operation, and yield a row of a table for each."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "kafkalog", "font.size": 8, "svg.fonttype": "none"})
    for name in (*LOCAL, *SERVED):
        of_two = speedup(found, name)
        speeds = [1.0, of_two, *(computed(of_two, count) for count in COMPUTED)]
        cells = [f"{one:.2f}" for one in speeds[1:]]
        rows = [f"| {name} | {' | '.join(cells)} | {serial_part(of_two):.0%} |"]
        if name != "decode":
            grown = {kind: found.get(kind, {}).get(name, {}) for kind in ("partitions", "size")}
            _figure(name, speeds, grown["partitions"], grown["size"])
            for kind, values in grown.items():
                rows.append(f"  {kind}: " + ", ".join(f"{at} {scaled(name, one):.3g}" for at, one in values.items()))
        yield from rows
    yield f"load: {found['loads']} ({found['machine']})"


def scaled(name: str, value: float) -> float:
    """Return milliseconds of CPU a megabyte, or microseconds a request, as the plots show them."""
    return value if name in SERVED else value * 1000


def _figure(name: str, speeds: Sequence[float], partitions: Mapping[str, float], size: Mapping[str, float]) -> None:
    from matplotlib import pyplot

    unit = "µs of CPU a request" if name in SERVED else "ms of CPU a MB"
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(9, 2.6))
    processors = (1, 2, *COMPUTED)
    left.plot(processors, processors, color=_DIM, linewidth=1, linestyle=":", label="linear")
    left.plot(processors[1:], speeds[1:], color=_A, linestyle="--", marker="o", fillstyle="none", label="computed")
    left.plot(processors[:2], speeds[:2], color=_A, marker="o", label="measured")
    left.set_xscale("log", base=2)
    left.set_yscale("log", base=2)
    left.set_xticks(processors, [str(one) for one in processors])
    left.set_yticks(processors, [str(one) for one in processors])
    left.set_xlabel("processors")
    left.set_ylabel("speed, of one")
    left.legend(frameon=False)
    for axes, values, label in ((middle, partitions, "partitions"), (right, size, "MB in one partition")):
        points = [int(at) for at in values]
        axes.plot(points, [scaled(name, one) for one in values.values()], color=_A, marker="o")
        axes.set_xscale("log")
        axes.set_xticks(points, [f"{one:,}" for one in points])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel(label)
        axes.set_ylabel(unit)
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(name)
    figure.tight_layout()
    figure.savefig(IMAGES / f"growth-{name}.svg", metadata={"Date": None})
    pyplot.close(figure)
