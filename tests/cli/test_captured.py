"""verify on tensors of real training, testdata/captured: right sums in orders that kernels have pass, faults in the same
order fail. The sums are made here, term by term in float32."""
import json

import numpy as np
from harness import ROOT, CliTest, kept, parse_report, save, single, tf32, to_float64
from verifying import in_sequence

FOLDER = ROOT / "testdata/captured"
PROBLEMS = {entry["name"].split("_")[0]: entry
            for entry in map(json.loads, (FOLDER / "problems.jsonl").read_text().splitlines())}


class Pair:
    def __init__(self, name):
        entry = self.entry = PROBLEMS[name]
        self.dtype = entry["dtype"]
        self.x, self.dy = (to_float64(self.dtype, np.load(FOLDER / entry[which])) for which in ("input", "out_backprop"))
        self.taps, self.strides = entry["filter_sizes"][:2], entry["strides"][1:3]
        pads = entry["explicit_paddings"][2:6]
        self.pads = (pads[:2], pads[2:])

    def args(self):
        entry = self.entry
        flags = [("-i", FOLDER / entry["input"]), ("-g", FOLDER / entry["out_backprop"]), ("--op", entry["op"])]
        flags += [(flag, ",".join(map(str, values))) for flag, values in (
            ("-k", self.taps), ("-s", self.strides), ("--explicit-paddings", sum(self.pads, [])))]
        return [word for flag in flags for word in flag] + ["-p", "explicit", "--out-dtype", "float32"]

    def terms(self, x, dy):
        """[n, p, q, r, s, c, k], rounded to float32."""
        padded = np.pad(x, ((0, 0), *self.pads, (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.taps, (1, 2))[:, ::self.strides[0], ::self.strides[1]]
        windows = windows[:, :dy.shape[1], :dy.shape[2]].transpose(0, 1, 2, 4, 5, 3)
        return single(windows[..., None] * dy[:, :, :, None, None, None])


def pixels(terms):
    return terms.reshape(-1, *terms.shape[3:])


def even_and_odd(terms, axis, walk=(0, 1, 2)):
    """Two sums that take the places of an axis in turns, each in the order of a walk."""
    order = (*walk, 3, 4, 5, 6)
    even, odd = (in_sequence(pixels(part.transpose(order))) for part in (
        terms.take(range(0, terms.shape[axis], 2), axis), terms.take(range(1, terms.shape[axis], 2), axis)))
    return even + odd


# What the order n, p, q alone would fail, as verify did once.
ORDERS = {
    "discriminator": {  # real and fake images in turns
        "p, q, n with even and odd n apart, as XLA": lambda t: even_and_odd(t, 0, (1, 2, 0)),
        "even images, odd images": lambda t: even_and_odd(t, 0)},
    "coordinates": {  # dy's sign depends on the position
        "n innermost": lambda t: in_sequence(pixels(t.transpose(1, 2, 0, 3, 4, 5, 6))),
        "columns outermost": lambda t: in_sequence(pixels(t.transpose(2, 0, 1, 3, 4, 5, 6)))},
    "autoencoder": {  # the next layer has stride 2
        "even rows, odd rows": lambda t: even_and_odd(t, 1)},
}


class CapturedTest(CliTest):
    def judge(self, pair, gradient, *flags):
        save(self.folder / "r.npy", gradient, "float32")
        result = self.run_here("verify", *pair.args(), "--result", "r.npy", "--diagnosis", "off", "--json", *flags)
        self.assertIn(result.status, (0, 1), str(result))
        return parse_report(result.out)["compare"]

    def test_the_pairs_are_small(self):
        self.assertEqual(len(PROBLEMS), 4)
        self.assertLess(sum(path.stat().st_size for path in FOLDER.iterdir()), 300 << 10)

    def test_right_orders_match_if_another_order_is_assumed(self):
        for name, orders in ORDERS.items():
            pair = Pair(name)
            terms = pair.terms(pair.x, pair.dy)
            for order, summed in orders.items():
                with self.subTest(name, order=order):
                    gradient = summed(terms)
                    self.assertEqual(self.judge(pair, gradient, "--order", "natural")["verdict"], "mismatch")
                    report = self.judge(pair, gradient)
                    self.assertEqual(report["verdict"], "match")
                    self.assertIn("order_assumed", report)

    def test_the_natural_order_needs_no_other(self):
        for name in PROBLEMS:
            with self.subTest(name):
                pair = Pair(name)
                gradient = in_sequence(pixels(pair.terms(pair.x, pair.dy)))
                for flags in ((), ("--order", "natural")):
                    report = self.judge(pair, gradient, *flags)
                    self.assertEqual(report["verdict"], "match")
                    self.assertNotIn("order_assumed", report)

    def test_faults_in_such_an_order_fail(self):
        for name in PROBLEMS:
            pair = Pair(name)
            for order, summed in {**ORDERS.get(name, {}), "natural": lambda t: in_sequence(pixels(t))}.items():
                for fault, gradient in self.faulty(pair, summed):
                    with self.subTest(name, order=order, fault=fault):
                        self.assertEqual(self.judge(pair, gradient)["verdict"], "mismatch")

    def faulty(self, pair, summed):
        """(fault, gradient)"""
        x, dy = pair.x, pair.dy
        sizes = abs(dy).sum(-1) * abs(pair.terms(x, np.ones_like(dy[..., :1]))).sum((3, 4, 5, 6))
        at = np.unravel_index(np.argsort(sizes, None)[sizes.size // 2], sizes.shape)
        lost = dy.copy()
        lost[at] = 0
        yield f"pixel {at} is lost", summed(pair.terms(x, lost))
        # float16's numbers are numbers of TF32.
        yield "inputs rounded", summed(pair.terms(*(
            kept("bfloat16", values) if pair.dtype == "float16" else tf32(values) for values in (x, dy))))
        terms = pair.terms(x, dy)
        images = [kept("bfloat16", in_sequence(pixels(terms[n:n + 1]))) for n in range(len(terms))]
        yield "images' sums in bfloat16", in_sequence(np.array(images))
        halves = [kept("bfloat16", summed(part)) for part in (terms[:len(terms) // 2], terms[len(terms) // 2:])]
        yield "two halves in bfloat16", halves[0] + halves[1]
