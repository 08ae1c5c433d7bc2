"""Pictures of what convgrad has written, by matplotlib, as .svg, .png or .pdf:

    python3 -m convgrad.plot diff FILE.npy -o F.svg          where a gradient is off: of verify or compare --save-diff
    python3 -m convgrad.plot roofline BENCH.json -o F.svg    speeds below the machine's peaks: of bench --json

Exit status: 0 drawn; 2 usage; 3 bad input; 4 no matplotlib; 5 the picture cannot be written. In a notebook diff(array) is the first.
"""
from __future__ import annotations

import argparse
import io
import json
import math
import os
import sys

from convgrad import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any
__tracebackhide__ = True

try:
    import matplotlib
    import numpy as np
    from matplotlib.figure import Figure  # without pyplot no display is looked for
    from matplotlib.ticker import MaxNLocator
    missing = None
except ImportError as error:
    missing = error

INSTALL = "pip install matplotlib, or Debian's python3-matplotlib"
MOST_PANELS, MOST_CELLS = (48, 64), 256  # down and to the right; cells in each direction, over all panels


def text_of(words):
    """As the picture shows it: no formula, and nothing that XML cannot hold."""
    return "".join(c if c.isprintable() else "\ufffd" for c in words).replace("$", r"\$")


def diff(array: Any, filter_format: str | None = None, allowed: float | None = None, name: str = "dw") -> Figure:
    """The picture of got - want, an array, as a figure of matplotlib; with allowed in units of that: blue below, red above."""
    if missing:
        raise Error(f"matplotlib cannot be imported ({missing}): {INSTALL}", 4)
    return draw_difference(np.array(array, np.float64), name, filter_format, allowed)


def read_difference(path):
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise Error(f"{path}: cannot be read as .npy: {error}", 3) from None
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub":
        raise Error(f"{path}: is no array of float32 or float64, which --save-diff FILE.npy writes", 3)
    return np.array(values, np.float64)


def arranged(path, values, form):
    """The array as [row of panels, column, c, k], the names of its tap axes, and their extents."""
    if form and len(form) != values.ndim:
        raise Error(f"--filter-format: {form} has {len(form)} axes, but {path} has shape {values.shape}", 3)
    if values.size == 0:
        values = np.zeros((1,) * values.ndim)  # one cell, which is equal
    values = np.atleast_2d(values)
    c, k = (form.index("I"), form.index("O")) if form else (values.ndim - 2, values.ndim - 1)
    values = values.transpose(*(axis for axis in range(values.ndim) if axis not in (c, k)), c, k)
    extents = values.shape[:-2] or (1,)
    names = [*(f"i{axis}" for axis in range(len(extents) - 3)), "t", "r", "s"][-len(extents):]
    return values.reshape(-1, extents[-1], *values.shape[-2:]), names, extents


def thinned(panels):
    """Of so many neighbours along each axis the largest that the picture has room for all, and how many these are."""
    most = [*MOST_PANELS, *(MOST_CELLS // min(found, most) for found, most in zip(panels.shape, MOST_PANELS))]
    sizes = [-(-extent // most) for extent, most in zip(panels.shape, most)]
    for axis, size in enumerate(sizes):
        panels = np.maximum.reduceat(panels, range(0, panels.shape[axis], size), axis)
    return panels, sizes


def title_of(path, values, sizes, allowed):
    strange = ~np.isfinite(values)
    finite = np.where(strange, -1, np.abs(values))
    lines = [f"|got - want| of {os.path.basename(path)}, shape {list(values.shape)}"]
    if allowed:
        lines.append(f"1 is what is allowed, {allowed:.3g}: below it is blue, above it red")
    if finite.max(initial=-1) >= 0:
        index = [int(i) for i in np.unravel_index(finite.argmax(), finite.shape)]
        lines.append(f"the largest: {finite.max():.6g} at {index}")
    lines.append(f"grey: equal; magenta: NaN or infinite, {strange.sum()} of {values.size}")
    if max(sizes) > 1:
        lines.append("each cell is the largest of up to " + " x ".join(str(s) for s in sizes if s > 1) + " elements")
    return "\n".join(map(text_of, lines))


def label_axis(axis, names, length, size, channels):
    """Names of panels where there are several, else numbers of channels."""
    axis.set_label_text(channels if len(names) == 1 else f"{channels}, in each")
    axis.set_major_locator(MaxNLocator(integer=True))
    axis.set_major_formatter(lambda at, _: f"{at * size:g}")
    if len(names) > 1:
        step = -(-len(names) // 16)
        axis.set_ticks([i * (length + 1) + (length - 1) / 2 for i in range(len(names))][::step], names[::step])


def draw_difference(values, path, filter_format, allowed=None):
    panels, names, extents = arranged(path, values, filter_format)
    panels = np.where(np.isfinite(panels), np.abs(panels), np.inf) / (allowed or 1)
    down, right = (f"{name}, 0 to {extent - 1}" for name, extent in
                   zip(("input channel c", "output channel k"), panels.shape[2:]))
    if panels.shape[3] < 8 and panels.shape[2] > 4 * panels.shape[3]:  # as depthwise filters are
        panels, down, right = panels.swapaxes(2, 3), right, down
    panels, sizes = thinned(panels)
    rows, columns, height, width = panels.shape
    canvas = np.pad(panels, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=np.nan)  # white between panels
    canvas = canvas.transpose(0, 2, 1, 3).reshape(rows * (height + 1), -1)[:-1, :-1]
    with np.errstate(divide="ignore"):
        decades = np.log10(canvas)
    some = decades[np.isfinite(decades)].tolist() or [0]
    low = math.floor(min(some))
    high = max(math.ceil(max(some)), low + 1)
    if allowed:
        low, high = -max(-low, high), max(-low, high)  # white is 1
    axes = Figure(figsize=np.clip(np.divide(canvas.T.shape, 4), 3.5, (10, 8))).add_subplot()
    colors = matplotlib.colormaps["coolwarm" if allowed else "viridis_r"].with_extremes(bad="white", under="#ededed", over="#ff00cc")
    image = axes.imshow(np.clip(decades, low - 1, high + 1), colors, interpolation="none", aspect="auto", vmin=low,
                        vmax=high, gid="cells")
    row_names = [" ".join(f"{name}={i}" for name, i in zip(names, place)) for place in np.ndindex(*extents[:-1])]
    label_axis(axes.yaxis, row_names[::sizes[0]], height, sizes[2], down)
    label_axis(axes.xaxis, [f"{names[-1]}={i * sizes[1]}" for i in range(columns)], width, sizes[3], right)
    axes.figure.colorbar(image, ax=axes, label="|got - want|" + " / allowed" * bool(allowed), extend="both", ticks=MaxNLocator(integer=True),
                         format=lambda at, _: f"1e{at:g}")
    axes.set_title(title_of(path, values, sizes, allowed), loc="left", fontsize="medium")
    return axes.figure


def read_json(path, parse, what):
    try:
        with open(path, encoding="utf-8") as file:
            return parse(json.load(file))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Error(f"{path}: is nothing that {what} writes", 3) from None


def parse_bench(report):
    dots, peaks = [], report["peaks"] or {}
    for problem in report["problems"]:
        dtype, execution, work = problem["attrs"]["dtype"], problem["execution"], problem["work"]
        layer = problem["name"], dtype, problem["attrs"]["data_format"], execution["threads"]
        dots.append((f"{execution['algorithm']}, {dtype}, threads: {execution['threads']}", tuple(map(str, layer)),
                     work["flops"] / max(work["bytes"], 1), float(problem["perf"]["gflops"])))
    dots = [dot for dot in dots if 0 < dot[2] < math.inf and 0 < dot[3] < math.inf]
    roofs = {f"multiply-adds, {dtype}": gflops for dtype, gflops in peaks.get("fma_gflops", {}).items()}
    roofs.update({"AVX512-BF16": peaks.get("avx512_bf16_gflops"), "AMX-BF16": peaks.get("amx_bf16_gflops")})
    roofs = {name: float(gflops) for name, gflops in roofs.items() if gflops}
    return report["machine"]["processor"], dots, roofs, float(peaks.get("read_gbytes_per_s") or 0)


def parse_peers(report):
    return report["processor"], [
        (title, tuple(map(str, (layer["name"], layer["dtype"], layer["layout"], report["threads"]))),
         float(layer["gflops"][program]))
        for program, title in report["peers"].items() for layer in report["layers"] if layer["gflops"][program]]


def peers_of(path, processor, dots):
    """The dots of other programs, above or below those of the same layers."""
    measured_on, speeds = read_json(path, parse_peers, "compare_peers.py --json")
    if measured_on != processor:
        raise Error(f"--peers: {path} was measured on {measured_on}, but the report on {processor}", 3)
    places = {layer: x for _, layer, x, _ in dots}
    found = [(program, layer, places[layer], gflops) for program, layer, gflops in speeds if layer in places]
    if not found:
        raise Error(f"--peers: {path} has none of the rows, expected e.g. {dots[0][1]}", 3)
    return found


def draw_dots(axes, dots, gid, markers, **look):
    for i, series in enumerate(dict.fromkeys(dot[0] for dot in dots)):
        places = [dot[2:] for dot in dots if dot[0] == series]
        axes.plot(*zip(*places), markers[i % len(markers)], label=text_of(series), gid=f"{gid}-{i}", **look)


def draw_roofline(options):
    processor, dots, roofs, speed = read_json(options.file, parse_bench, "convgrad bench --json=FILE")
    if not dots:
        raise Error(f"{options.file}: no row has FLOPs and a time, so there is nothing to draw", 3)
    axes = Figure(figsize=(9, 6)).add_subplot()
    axes.set(xscale="log", yscale="log", ylabel="GFLOP/s", xlabel="FLOP per byte of x, dy and dw, each moved once")
    axes.set_title(text_of(f"convgrad bench, {processor}"), loc="left", fontsize="medium")
    axes.grid(color="0.92")
    draw_dots(axes, dots, "dots", "o")
    names = list(dict.fromkeys(layer[0] for _, layer, _, _ in dots))
    for _, layer, *place in dots:
        axes.annotate(str(names.index(layer[0]) + 1), place, (4, 3), textcoords="offset points", fontsize=8)
    axes.text(1.01, 1, "\n".join(f"{i + 1:3} {text_of(name)}" for i, name in enumerate(names)), va="top", fontsize=8,
              transform=axes.transAxes)
    if options.peers:
        draw_dots(axes, peers_of(options.peers, processor, dots), "peer", "sD^v", fillstyle="none")
    if speed:
        axes.axline((1, speed), (10, 10 * speed), color="0.4", label=f"reading memory: {speed:.4g} GB/s", gid="roof")
    for style, (name, gflops) in zip(("-", "--", ":", "-."), roofs.items()):
        axes.axhline(gflops, color="0.4", linestyle=style, label=f"{text_of(name)}: {gflops:.4g} GFLOP/s", gid="roof")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.1), ncol=2, frameon=False)
    return axes.figure


def save(figure, path):
    """A picture appears complete, or not at all."""
    kind = path.rpartition(".")[2].lower()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)  # equal pictures are equal files
    picture = io.BytesIO()
    figure.savefig(picture, format=kind, dpi=150, bbox_inches="tight", metadata=metadata)
    part = f"{os.path.realpath(path)}.{os.getpid()}.part"
    try:
        with open(part, "xb") as file:
            file.write(picture.getvalue())
        os.replace(part, os.path.realpath(path))
    except OSError as error:
        status = 3 if isinstance(error, (FileNotFoundError, IsADirectoryError, PermissionError)) else 5
        raise Error(f"-o: {path}: cannot be written: {error.strerror}", status) from None
    finally:
        if os.path.exists(part):
            os.remove(part)


def fail(message):
    raise Error(f"{message}; see python3 -m convgrad.plot --help", 2)


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python3 -m convgrad.plot", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.error = fail
    parser.add_argument("picture", choices=("diff", "roofline"))
    parser.add_argument("file")
    parser.add_argument("-o", "--output", metavar="F.svg", required=True, help="or .png, or .pdf")
    parser.add_argument("--filter-format", type=str.upper, help="of diff; HWIO by default",
                        choices="HWIO OIHW OHWI DHWIO OIDHW ODHWI WIO OIW OWI".split())
    parser.add_argument("--peers", metavar="JSON", help="of roofline: other programs, of compare_peers.py --json")
    options = parser.parse_args(arguments)
    if options.peers if options.picture == "diff" else options.filter_format:
        fail("--peers is for roofline, --filter-format for diff")
    if not options.output.lower().endswith((".svg", ".png", ".pdf")):
        fail(f"-o: {options.output}, expected a name that ends with .svg, .png or .pdf")
    if os.path.realpath(options.output) in [os.path.realpath(file) for file in (options.file, options.peers) if file]:
        fail(f"-o: {options.output} is read, too; name another file")
    return options


def main(arguments=None):
    try:
        options = parse(arguments)
        if missing:
            raise Error(f"matplotlib cannot be imported ({missing}): {INSTALL}", 4)
        matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "convgrad"})
        if options.picture == "diff":
            figure = draw_difference(read_difference(options.file), options.file, options.filter_format)
        else:
            figure = draw_roofline(options)
        save(figure, options.output)
    except (Error, OSError, MemoryError) as error:
        message = f"{error.filename or options.file}: {error.strerror}" if isinstance(error, OSError) else str(error)
        print("convgrad.plot: error:", " ".join(message.split()), file=sys.stderr)
        return getattr(error, "status", 3 if isinstance(error, OSError) else 5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
