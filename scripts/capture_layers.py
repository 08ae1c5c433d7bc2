#!/usr/bin/env python3
"""Trains small networks and keeps what their convolutions read and what came back to them, as problems for `verify`.

    python3 scripts/capture_layers.py FOLDER [--networks critic,autoencoder] [--dtypes float32] [--steps 150] [--size 32]

Needs PyTorch; the data are made here, but for scikit-learn's digits where that is installed. x and dy of every convolution are
kept, channels last, at steps 1 and 40 and the last two, of which the last has a saturated softmax; FOLDER/problems.jsonl lists them as
`convgrad batch` reads them. 16-bit dtypes are trained by autocast, float16 with a loss scale of 2^13. measure_false_alarms.py and
measure_power.py judge such folders by --captured.
"""
import argparse
import pathlib
import sys

import numpy as np

import layers

LOSS_SCALE = 2.0**13
SATURATED = 25  # what the last step's logits are multiplied with: nearly all of softmax's gradient is 0


# ---- Data: x channels first, and labels ----------------------------------------------------------

def digits(rng, size, count=1200):
    """Grey 8x8 images of ten classes, made larger."""
    try:
        from sklearn.datasets import load_digits
        x, y = load_digits(return_X_y=True)
        x, y = x[:count].reshape(-1, 8, 8) / 16, y[:count]
    except ImportError:  # strokes of a class, moved and thinned
        y = rng.integers(10, size=count)
        walks = rng.integers(-1, 2, (10, 14, 2)).cumsum(1) % 8
        x = np.zeros((count, 8, 8))
        for image, label in zip(x, y):
            at = (walks[label] + rng.integers(-1, 2, 2)) % 8
            image[at[:, 0], at[:, 1]] = rng.random(len(at)) ** .3
    return x.repeat(size // 8, 1).repeat(size // 8, 2)[:, None], y


def pictures(rng, size, count=256, classes=20):
    """Colour images in 0..1: a shaded ground and discs in front of it, whose colours are the class's; camera noise."""
    y = rng.integers(classes, size=count)
    palette = rng.random((classes, 4, 3))
    rows, columns = np.mgrid[:size, :size] / size
    x = np.empty((count, 3, size, size))
    for image, label in zip(x, y):
        a, b = rng.uniform(-.3, .3, 2)
        image[:] = palette[label, 0][:, None, None] * (.8 + a * rows + b * columns)
        for colour in palette[label, 1:]:
            u, v, radius = rng.uniform(0, 1, 3)
            image[:, (rows - u) ** 2 + (columns - v) ** 2 < (radius / 3) ** 2] = colour[:, None]
    return np.clip(x + .02 * rng.standard_normal(x.shape), 0, 1), y


def clips(rng, size, frames=8, count=240):
    """Digits that move over a torus, [count, 1, frame, row, column]."""
    x, y = digits(rng, size)
    pick = rng.choice(len(x), count, replace=False)
    steps = rng.integers(-1, 2, (count, 2))
    moved = [[np.roll(x[i, 0], t * step, (0, 1)) for t in range(frames)] for i, step in zip(pick, steps)]
    return np.array(moved)[:, None], y[pick]


def real_and_fake(rng, size):
    """Pictures and what a poor generator makes of them, in turns."""
    real, _ = pictures(rng, size)
    fake = sum(np.roll(real, (i, j), (2, 3)) for i in range(-2, 3) for j in range(-2, 3)) / 25
    both = np.stack([real, fake + .02 * rng.standard_normal(real.shape)], 1)
    return both.reshape(-1, *real.shape[1:]), np.arange(2 * len(real)) % 2


def any_images(rng, y, batch):
    return rng.choice(len(y), batch, replace=False)


def classes_in_turns(rng, y, batch):
    """Of two classes: 0, 1, 0, 1 and so on."""
    return np.stack([rng.choice(np.flatnonzero(y % 2 == label), batch // 2) for label in (0, 1)], 1).ravel()


# ---- Networks ------------------------------------------------------------------------------------

class Network:
    """Modules in a row, what they are trained with, and how. loss: "softmax", or a function of (output, x, y)."""

    def __init__(self, modules, data, optimizer, batch, loss="softmax", pick=any_images):
        self.modules, self.data, self.optimizer = modules, data, optimizer
        self.batch, self.loss, self.pick = batch, loss, pick


def networks(torch, rng, size):
    """{name: a function that makes the network}"""
    nn, optim, functional = torch.nn, torch.optim, torch.nn.functional

    def conv(c, k, taps, stride=1, of=nn.Conv2d, **more):
        same = {} if "padding" in more or taps == stride else {"padding": taps // 2}
        return of(c, k, taps, stride=stride, **same, **more)

    def head(c, classes, pool=nn.AdaptiveAvgPool2d):
        return [pool(1), nn.Flatten(), nn.Linear(c, classes)]

    def adam(rate):
        return lambda parameters: optim.Adam(parameters, rate)

    def to_input(output, x, y):
        return functional.mse_loss(output, x)

    def coordinates(output, x, y):
        ends = [torch.linspace(-1, 1, extent, dtype=output.dtype) for extent in output.shape[2:]]
        return functional.mse_loss(output, torch.stack(torch.meshgrid(*ends, indexing="ij")).expand_as(output))

    return {
        "digits": lambda: Network(
            [conv(1, 12, 3, bias=False), nn.BatchNorm2d(12), nn.ReLU(), conv(12, 16, 3, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
             conv(16, 16, 3, groups=16), conv(16, 24, 1), nn.ReLU(), conv(24, 16, 3, groups=4), nn.ReLU(),
             conv(16, 16, 3, padding=2, dilation=2), nn.ReLU(), *head(16, 10)],
            digits(rng, size // 2), adam(3e-3), 64),
        "convnext": lambda: Network(
            [conv(3, 12, 4, 2, padding=1), conv(12, 12, 7, groups=12), conv(12, 24, 1), nn.GELU(), conv(24, 12, 1), conv(12, 16, 2, 2),
             conv(16, 16, 5, groups=16), conv(16, 16, 3), nn.GELU(), *head(16, 20)],
            pictures(rng, size), lambda parameters: optim.AdamW(parameters, 1e-3), 32),
        "raw pixels": lambda: Network(
            [conv(3, 8, 5), nn.LeakyReLU(.1), conv(8, 12, 2, 2), conv(12, 12, 3), nn.LeakyReLU(.1), nn.Flatten(),
             nn.Linear(12 * (size // 2)**2, 2)],
            raw(pictures(rng, size, classes=2)), lambda parameters: optim.SGD(parameters, 1e-7), 32, pick=classes_in_turns),
        "autoencoder": lambda: Network(
            [conv(3, 12, 3), nn.Tanh(), conv(12, 16, 3, 2), nn.Tanh(), conv(16, 32, 1), nn.PixelShuffle(2), conv(8, 3, 5)],
            pictures(rng, size), adam(2e-3), 16, to_input),
        "clips": lambda: Network(
            [conv(1, 8, 3, of=nn.Conv3d), nn.ReLU(), conv(8, 12, 3, (1, 2, 2), of=nn.Conv3d, padding=1), nn.BatchNorm3d(12), nn.ReLU(),
             conv(12, 12, (3, 1, 1), of=nn.Conv3d, padding=(1, 0, 0)), nn.ReLU(), *head(12, 10, nn.AdaptiveAvgPool3d)],
            clips(rng, size // 2), adam(3e-3), 8),
        "coordinates": lambda: Network(
            [conv(3, 12, 3), nn.ReLU(), conv(12, 12, 3, groups=3), nn.ReLU(), conv(12, 2, 1)],
            pictures(rng, size), adam(1e-3), 32, coordinates),
        "down": lambda: Network(
            [conv(1, 4, 5), conv(4, 8, 2, 2), nn.ReLU(), conv(8, 8, 3), conv(8, 12, 2, 2), nn.ReLU(), *head(12, 10)],
            digits(rng, size), adam(2e-3), 32),
        "discriminator": lambda: Network(
            [conv(3, 8, 4, 2, padding=1), nn.LeakyReLU(.2), conv(8, 16, 4, 2, padding=1), nn.LeakyReLU(.2), conv(16, 16, 3),
             nn.LeakyReLU(.2), *head(16, 2)],
            real_and_fake(rng, size), adam(5e-4), 48, pick=classes_in_turns),
        "critic": lambda: Network(
            [conv(3, 12, 3, 2), nn.ReLU(), conv(12, 16, 3, 2), nn.ReLU(), conv(16, 16, 3, 2), nn.ReLU(), *head(16, 1)],
            real_and_fake(rng, size), lambda parameters: optim.RMSprop(parameters, 5e-5), 64,
            lambda output, x, y: output[y == 1].mean() - output[y == 0].mean(), classes_in_turns),
        "superresolution": lambda: Network(
            [conv(3, 4, 3), nn.ReLU(), conv(4, 12, 2, 2), nn.ReLU(), conv(12, 12, 3), nn.PixelShuffle(2)],
            pictures(rng, size), adam(1e-3), 24, lambda output, x, y: functional.l1_loss(output, x)),
    }


def raw(data):
    x, y = data
    return np.rint(255 * x), y


# ---- Training ------------------------------------------------------------------------------------

def trained_steps(torch, network, dtype, steps, rng):
    """Trains, and yields (step, {number of a module: [x, dy]}) at the steps that are kept."""
    own = torch.float64 if dtype == "float64" else torch.float32
    narrow = getattr(torch, dtype) if dtype.endswith("16") else None
    scale = LOSS_SCALE if dtype == "float16" else 1
    x, y = torch.tensor(network.data[0]).to(own), torch.tensor(network.data[1])
    model = torch.nn.Sequential(*network.modules).to(own)
    optimizer, seen = network.optimizer(model.parameters()), {}

    def keep(number):
        def hook(module, inputs, output):
            seen[number] = [inputs[0].detach().to(narrow or own), None]
            output.register_hook(lambda gradient: seen[number].__setitem__(1, gradient.detach()))
        return hook

    for step in range(1, steps + 1):
        kept = step in (1, 40, steps - 1, steps)
        hooks = [module.register_forward_hook(keep(i)) for i, module in enumerate(model)
                 if kept and isinstance(module, (torch.nn.Conv2d, torch.nn.Conv3d))]
        pick = torch.tensor(network.pick(rng, network.data[1], network.batch))
        with torch.autocast("cpu", narrow or torch.bfloat16, enabled=narrow is not None):
            output = model(x[pick])
        output = output.to(own)
        if network.loss == "softmax":
            loss = torch.nn.functional.cross_entropy(output * (SATURATED if step == steps else 1), y[pick])
        else:
            loss = network.loss(output, x[pick], y[pick])
        optimizer.zero_grad()
        (loss * scale).backward()
        for parameter in model.parameters():
            parameter.grad /= scale
        optimizer.step()
        for hook in hooks:
            hook.remove()
        if kept:
            yield step, loss.item(), dict(seen)


def layer_of(torch, module, x, dy, dtype):
    """Padding at the end is what dy's extent needs, no more."""
    channels, rank = x.shape[-1], len(module.kernel_size)
    pads = []
    for extent, outs, taps, stride, dilation, before in zip(x.shape[1:-1], dy.shape[1:-1], module.kernel_size, module.stride,
                                                            module.dilation, module.padding):
        pads.append((before, max(0, (outs - 1) * stride + (taps - 1) * dilation + 1 - extent - before)))
    op = "conv3d" if rank == 3 else "depthwise" if module.groups == channels > 1 else "conv2d"
    return layers.Layer(op, len(x), x.shape[1:-1], channels, dy.shape[-1], module.kernel_size, module.stride, module.dilation,
                        tuple(pads), module.groups, dtype)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--networks", type=lambda text: text.split(","), help="with commas between them; without it, all")
    parser.add_argument("--dtypes", type=lambda text: text.split(","), default=["float32", "bfloat16", "float16", "float64"])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--size", type=int, default=32, help="rows and columns of the data, a multiple of 16; digits and clips have half")
    parser.add_argument("--channels", type=int, help="keeps so many of a layer alone, where it has one group")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        sys.exit(f"capture_layers.py: {error}; the networks are trained with PyTorch: pip install torch")
    torch.set_num_threads(1)  # small networks
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / layers.CAPTURED).write_text("")
    for name in args.networks or networks(torch, None, args.size):
        for dtype in args.dtypes:
            rng = np.random.default_rng(args.seed)
            torch.manual_seed(args.seed)
            network = networks(torch, rng, args.size)[name]()
            for step, loss, seen in trained_steps(torch, network, dtype, args.steps, rng):
                print(f"{name}, {dtype}, step {step}: loss {loss:.4g}", flush=True)
                for number, tensors in seen.items():
                    x, dy = (np.moveaxis(values.to(torch.float64).numpy(), 1, -1) for values in tensors)
                    if not np.isfinite(dy).all():
                        print(f"  module {number}: left out, its dy is not finite")
                        continue
                    if args.channels and network.modules[number].groups == 1:
                        x, dy = x[..., :args.channels], dy[..., :args.channels]
                    title = f"{name.replace(' ', '_')}_{dtype}_step{step}_module{number}"
                    layers.keep(args.folder, title, layer_of(torch, network.modules[number], x, dy, dtype), x, dy)


if __name__ == "__main__":
    main()
