"""convgrad.plot: what its pictures show, read from the SVG, and what it refuses."""
import base64
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import matplotlib
import matplotlib.image
import numpy as np
import pytest

import convgrad.plot as plot
from convgrad import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
WHITE, EQUAL, NOT_FINITE = (255, 255, 255), (237, 237, 237), (255, 0, 204)
PEAKS = {"instruction_set": "avx512", "fma_gflops": {"float32": 100, "float64": None}, "avx512_bf16_gflops": 200,
         "amx_bf16_gflops": None, "read_gbytes_per_s": 20}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def drawn(*arguments, output="p.svg"):
    assert plot.main([*map(str, arguments), "-o", output]) == 0
    return pathlib.Path(output).read_bytes()


def difference(values, *arguments):
    np.save("d.npy", np.asarray(values))
    return drawn("diff", "d.npy", *arguments)


def texts(svg):
    return ["".join(text.itertext()) for text in ElementTree.fromstring(svg).iter(SVG + "text")]


def cells(svg):
    """The colour of each cell, and white between taps, as [row, column, rgb]."""
    image, = (e for e in ElementTree.fromstring(svg).iter(SVG + "image") if e.get("id") == "cells")
    data = base64.b64decode(image.get(LINK).partition("base64,")[2])
    return (matplotlib.image.imread(io.BytesIO(data))[..., :3] * 255).round().astype(int)


def count(pixels, color):
    return int((pixels == color).all(-1).sum())


def dots(svg, prefix):
    """[[(x, y) of each dot], ...] of the groups with such a name, in the picture's units."""
    groups = [g for g in ElementTree.fromstring(svg).iter(SVG + "g") if (g.get("id") or "").startswith(prefix)]
    return [[(float(use.get("x")), float(use.get("y"))) for use in group.iter(SVG + "use")] for group in groups]


def roofs(svg):
    """[both ends of each line]."""
    groups = [g for g in ElementTree.fromstring(svg).iter(SVG + "g") if g.get("id") == "roof"]
    return [[tuple(map(float, point)) for point in re.findall(r"[ML] (\S+) (\S+)", group.find(SVG + "path").get("d"))]
            for group in groups]


def row(name, flops=2e9, size=1e8, gflops=10.0, dtype="float32", used="direct", threads=1, layout="NHWC"):
    return {"name": name, "attrs": {"dtype": dtype, "data_format": layout}, "perf": {"gflops": gflops},
            "execution": {"threads": threads, "algorithm": used},
            "work": {"flops": flops, "bytes": size}}


def roofline(rows, *arguments, peaks=PEAKS, **report):
    report = {"machine": {"processor": "a processor"}, "peaks": peaks, "problems": rows, **report}
    pathlib.Path("b.json").write_text(json.dumps(report))
    return drawn("roofline", "b.json", *arguments)


def peers(name="peers.json", processor="a processor", threads=1, **layers):
    pathlib.Path(name).write_text(json.dumps({
        "processor": processor, "threads": threads, "peers": {"torch": "PyTorch 9.1", "tensorflow": "TensorFlow 9.2"},
        "layers": [{"name": layer, "dtype": "float32", "layout": "NHWC",
                    "gflops": {"convgrad": 99, "torch": gflops, "tensorflow": None}}
                   for layer, gflops in layers.items()]}))
    return ["--peers", name]


def test_each_cell_has_its_place_and_colour():
    values = np.zeros((2, 3, 4, 5))
    values[0, 0, 0, 0], values[1, 2, 3, 4], values[0, 1, 2, 3], values[1, 0, 1, 1] = 1e4, -1, np.nan, -np.inf
    svg = difference(values)
    pixels = cells(svg)
    assert pixels.shape == (2 * 5 - 1, 3 * 6 - 1, 3)
    place = {(0, 0): (68, 1, 84), (5 + 3, 12 + 4): (253, 231, 37), (2, 6 + 3): NOT_FINITE, (5 + 1, 1): NOT_FINITE}
    for where, color in place.items():
        np.testing.assert_allclose(pixels[where], color, atol=1)
    assert count(pixels, EQUAL) == values.size - 4
    assert count(pixels, WHITE) == 9 * 17 - values.size
    shown = texts(svg)
    assert {"|got - want| of d.npy, shape [2, 3, 4, 5]", "the largest: 10000 at [0, 0, 0, 0]", "r=0",
            "grey: equal; magenta: NaN or infinite, 2 of 120", "r=1", "s=0", "s=1", "s=2", "1e0", "1e4", "|got - want|",
            "output channel k, 0 to 4, in each", "input channel c, 0 to 3, in each"} <= set(shown)
    assert not any(text.startswith("each cell") for text in shown)


def test_formats_say_where_the_taps_are():
    values = np.random.default_rng(7).integers(-9, 9, (2, 3, 2, 8, 9)).astype(float)
    assert {"t=1 r=2", "s=1"} <= set(texts(difference(values)))
    for array, orders in ((values[0], {"OIHW": (3, 2, 0, 1), "ohwi": (3, 0, 1, 2), "HWIO": (0, 1, 2, 3)}),
                          (values, {"OIDHW": (4, 3, 0, 1, 2), "ODHWI": (4, 0, 1, 2, 3)}), (values[0, 0], {"OIW": (2, 1, 0)})):
        want = difference(array)
        for name, order in orders.items():
            svg = difference(array.transpose(order), "--filter-format", name)
            np.testing.assert_array_equal(cells(svg), cells(want), name)
            assert [text for text in texts(svg) if " at [" not in text and "shape" not in text] == [
                text for text in texts(want) if " at [" not in text and "shape" not in text], name


def test_every_shape_has_a_picture():
    for shape, most in (((), 1), ((1,), 1), ((0,), 1), ((2, 0, 3), 1), ((7,), 7), ((3, 4), 12), ((2, 3, 4), 24),
                        ((3, 3, 96, 1), 3 * 3 * 48), ((7, 90, 2, 2), 7 * 45 * 4), ((1, 1, 257, 1000), 129 * 250),
                        ((3, 3, 100, 8), 3 * 3 * 50 * 8), ((2, 2, 2, 2, 2, 3, 2), 192), ((60, 2, 3, 5, 5), 40 * 3 * 25)):
        values = np.zeros(shape)
        if values.size:
            values[(-1,) * values.ndim] = 2   # the largest of a bin is seen
        svg = difference(values)
        assert count(cells(svg), EQUAL) == most - bool(values.size), shape
        binned = [text for text in texts(svg) if text.startswith("each cell is the largest of up to")]
        assert len(binned) == (most < values.size)


def test_a_dot_for_each_row():
    rows = [row("first", 1e9, gflops=1), row("second", 1e10, gflops=10), row("third", 1e10, 1e7, gflops=1000),
            row("first", 1e9, gflops=2, used="winograd"), row("no_work", flops=0), row("no_time", gflops=0)]
    svg = roofline(rows)
    direct, winograd = dots(svg, "dots-")
    assert (len(direct), len(winograd)) == (3, 1)
    (x1, y1), (x2, y2), (x3, y3) = direct
    assert (x2 - x1, y1 - y2) == pytest.approx((x3 - x2, (y2 - y3) / 2))
    assert winograd[0][0] == pytest.approx(x1) and y1 - winograd[0][1] == pytest.approx((y1 - y2) * np.log10(2))
    shown = texts(svg)
    assert [shown.count(text) for text in ("1", "2", "3", "4")] == [2, 1, 1, 0]
    assert {"convgrad bench, a processor", "GFLOP/s", "FLOP per byte of x, dy and dw, each moved once",
            "direct, float32, threads: 1", "winograd, float32, threads: 1",
            "1 first", "2 second", "3 third"} <= {text.strip() for text in shown}


def test_roofs_are_the_peaks_of_the_report():
    rows = [row("low", 1e8, gflops=1), row("high", 1e11, gflops=100)]
    svg = roofline(rows)
    assert [text for text in texts(svg) if text.endswith("/s") and ":" in text] == [
        "reading memory: 20 GB/s", "multiply-adds, float32: 100 GFLOP/s", "AVX512-BF16: 200 GFLOP/s"]
    (low, high), = dots(svg, "dots-")
    memory, arithmetic, bf16 = roofs(svg)
    assert arithmetic[0][1] == pytest.approx(high[1]) == pytest.approx(arithmetic[1][1])
    assert bf16[0][1] == pytest.approx(high[1] + (high[1] - low[1]) / 2 * np.log10(2))
    (x1, y1), (x2, y2) = memory    # of 20 GFLOP/s at 1 FLOP per byte
    decade = (high[0] - low[0]) / 3
    assert y1 + (y2 - y1) * (low[0] - x1) / (x2 - x1) == pytest.approx(
        low[1] + (high[1] - low[1]) / 2 * np.log10(20), abs=0.01)
    assert (y2 - y1) / (x2 - x1) == pytest.approx((high[1] - low[1]) / 2 / decade)
    assert len(roofs(roofline(rows, peaks={"read_gbytes_per_s": 20}))) == 1
    assert len(roofs(roofline(rows, peaks={"fma_gflops": {"float32": 9}}))) == 1


def test_peers():
    rows = [row("first"), row("first"), row("second", 4e9), row("third")]
    svg = roofline(rows, *peers(first=3.5, second=None, elsewhere=1))
    ((x, y),), = dots(svg, "peer-")   # once, whatever the algorithms
    (own, *_), = dots(svg, "dots-")
    assert x == pytest.approx(own[0]) and y > own[1]
    assert "PyTorch 9.1" in texts(svg) and "TensorFlow 9.2" not in texts(svg)


def test_a_report_of_the_program():
    run(["bench", "--op", "conv2d", "--input-shape", "1,6,5,3", "-k", 3, "--out-channels", 4, "-p", "same", "--dtype",
         "float32,bfloat16", "-t", "1,2", "--repeat", 1, "--min-time", 0, "--no-peaks", "--json=b.json"])
    assert sum(len(series) for series in dots(drawn("roofline", "b.json"), "dots-")) == 4


def test_texts_are_taken_as_they_are():
    name = "a$b$<c>&\"\u00e4\x01.npy"
    np.save(name, np.ones((1, 1, 2, 2)))
    assert "|got - want| of a$b$<c>&\"\u00e4\ufffd.npy, shape [1, 1, 2, 2]" in texts(drawn("diff", name))
    assert "  1 x$y$<\ufffd" in texts(roofline([row("x$y$<\x01")]))


def test_equal_pictures_are_equal_files():
    np.save("d.npy", np.random.default_rng(8).standard_normal((3, 3, 4, 5)))
    for kind, start in (("svg", b"<?xml"), ("png", b"\x89PNG\r\n"), ("pdf", b"%PDF-")):
        pictures = {drawn("diff", "d.npy", output=f"p.{kind}") for _ in range(2)}
        assert len(pictures) == 1 and pictures.pop().startswith(start)
    assert sorted(os.listdir()) == ["d.npy", "p.pdf", "p.png", "p.svg"]


@pytest.mark.parametrize("arguments, status, part", [
    ([], 2, "required"),
    (["diff", "d.npy", "-o", "p.jpg"], 2, "-o: p.jpg, expected"),
    (["diff", "d.svg", "-o", "./d.svg"], 2, "-o: ./d.svg is read"),
    (["diff", "d.npy", "-o", "p.svg", "--filter-format", "OIWH"], 2, "--filter-format"),
    (["diff", "d.npy", "-o", "p.svg", "--filter-format", "OIW"], 3, "--filter-format: OIW has 3 axes"),
    (["diff", "d.npy", "-o", "p.svg", "--peers", "peers.svg"], 2, "--peers is for roofline"),
    (["roofline", "b.json", "-o", "p.svg", "--filter-format", "OIHW"], 2, "--filter-format for diff"),
    (["diff", "none.npy", "-o", "p.svg"], 3, "none.npy: No such file"),
    (["diff", "text.npy", "-o", "p.svg"], 3, "text.npy: cannot be read"),
    (["diff", "bits.npy", "-o", "p.svg"], 3, "bits.npy: is no array of float32 or float64"),
    (["diff", "object.npy", "-o", "p.svg"], 3, "object.npy: cannot be read"),
    (["diff", "d.npy", "-o", "none/p.svg"], 3, "-o: none/p.svg: cannot be written: No such file"),
    (["diff", "d.npy", "-o", "folder.svg"], 3, "folder.svg"),
    (["roofline", "d.npy", "-o", "p.svg"], 3, "d.npy: is nothing that convgrad bench --json=FILE writes"),
    (["roofline", "list.json", "-o", "p.svg"], 3, "list.json: is nothing"),
    (["roofline", "idle.json", "-o", "p.svg"], 3, "nothing to draw"),
    (["roofline", "b.json", "-o", "p.svg", "--peers", "b.json"], 3, "b.json: is nothing that compare_peers.py --json writes"),
    (["roofline", "b.json", "-o", "p.svg", "--peers", "other.json"], 3, "other.json was measured on another one"),
    (["roofline", "b.json", "-o", "p.svg", "--peers", "two.json"], 3, "two.json has none of the rows"),
    (["roofline", "b.json", "-o", "peers.svg", "--peers", "peers.svg"], 2, "-o: peers.svg is read"),
])
def test_each_refusal_is_one_line(arguments, status, part, capsys):
    difference(np.ones((2, 2, 3, 3)))
    roofline([row("first")])
    os.rename("d.npy", "d.svg")
    os.symlink("d.svg", "d.npy")
    for name, text in (("text.npy", "text"), ("list.json", "[[]]")):
        pathlib.Path(name).write_text(text)
    pathlib.Path("idle.json").write_text(pathlib.Path("b.json").read_text().replace("10.0", "0"))
    np.save("bits.npy", np.ones(3, np.uint16).view("V2"))
    np.save("object.npy", np.array([{}]))
    os.mkdir("folder.svg")
    for name, more in (("peers.svg", {}), ("other.json", {"processor": "another one"}), ("two.json", {"threads": 2})):
        peers(name, first=1, **more)
    os.remove("p.svg")
    before = {path: path.read_bytes() for path in pathlib.Path().iterdir() if path.is_file()}
    assert plot.main(arguments) == status
    said = capsys.readouterr().err
    assert said.startswith("convgrad.plot: error: ") and said.count("\n") == 1 and part in said, said
    assert {path: path.read_bytes() for path in pathlib.Path().iterdir() if path.is_file()} == before


def test_a_picture_that_cannot_be_written_replaces_nothing(monkeypatch, capsys):
    before = difference(np.ones(3))

    def fail(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, "replace", fail)
    assert plot.main(["diff", "d.npy", "-o", "p.svg"]) == 5
    assert capsys.readouterr().err == "convgrad.plot: error: -o: p.svg: cannot be written: No space left on device\n"
    assert pathlib.Path("p.svg").read_bytes() == before and sorted(os.listdir()) == ["d.npy", "p.svg"]


def test_without_matplotlib(folder):
    (folder / "matplotlib.py").write_text("raise ModuleNotFoundError('none here')")
    np.save("d.npy", np.ones(3))
    environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT / 'python'}"}
    done = subprocess.run([sys.executable, "-m", "convgrad.plot", "diff", "d.npy", "-o", "p.svg"], env=environment,
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == ("convgrad.plot: error: matplotlib cannot be imported (none here): pip install matplotlib, or "
                           "Debian's python3-matplotlib\n")


def test_the_example_of_the_documentation(folder):
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", (ROOT / "docs/compare.md").read_text(), re.M | re.S)
    assert [language for language, _ in blocks] == ["sh", "python", "sh"]
    for language, code in blocks:
        shell = f'set -euo pipefail; python3() {{ {sys.executable} "$@"; }}; {code}'
        done = subprocess.run(["bash", "-c", shell] if language == "sh" else [sys.executable, "-c", code],
                              capture_output=True, check=False, text=True)
        assert (done.returncode, done.stderr) == (0, ""), code
    assert "Mismatched elements: 261 / 10368 (2.52 %)" in done.stdout
    made, shown = (picture.read_bytes() for picture in (folder / "heatmap.svg", ROOT / "docs/heatmap.svg"))
    assert (cells(made).shape, texts(made)) == (cells(shown).shape, texts(shown))
