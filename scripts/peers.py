"""TensorFlow, PyTorch and others as the measuring scripts run them, each in a Python of its own. Needs the standard library alone.

A worker is the script itself, started as `SCRIPT --worker KIND THREADS`: it calls serve(). The parent's side is Worker.
"""
import importlib
import json
import os
import pathlib
import platform
import selectors
import subprocess
import sys
import tempfile

TITLES = {"torch": "PyTorch", "tensorflow": "TensorFlow"}  # those whose speed compare_peers.py measures
TENSORFLOW_OPS = {"conv2d": "Conv2DBackpropFilter", "depthwise": "DepthwiseConv2dNativeBackpropFilter",
                  "conv3d": "Conv3DBackpropFilterV2"}


class DoesNotStart(Exception):
    """A Python that cannot run its peer."""


def processor():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def has(flag):
    """Whether Linux lists an instruction set of an x86 processor."""
    try:
        return flag in pathlib.Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False


def environment():
    # OPENBLAS_CORETYPE would choose other kernels in OpenBLAS than the processor's.
    return {k: v for k, v in os.environ.items()
            if k != "OPENBLAS_CORETYPE" and not k.startswith("CONVGRAD_")} | {"TF_CPP_MIN_LOG_LEVEL": "3"}


def load(kind, threads):
    """The peer's module, on the CPU and so many threads."""
    if kind == "torch":
        import torch
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(1)
        torch.set_grad_enabled(False)
        return torch
    if not kind.startswith("tensorflow"):
        return importlib.import_module(kind)
    import tensorflow
    tensorflow.config.threading.set_intra_op_parallelism_threads(threads)
    tensorflow.config.threading.set_inter_op_parallelism_threads(threads)
    tensorflow.config.set_visible_devices([], "GPU")
    return tensorflow


def torch_gradient(torch, layer, dtype, generator):
    """x and dy of a layer on the generator's device, and the gradient as a function of both. Uneven padding is there as zeros
    before a clock starts, as PyTorch pads both ends alike."""
    last = layer["layout"].endswith("C")
    deep = torch.channels_last_3d if layer["op"] == "conv3d" else torch.channels_last
    form = deep if last else torch.contiguous_format

    def normal(*shape):
        values = torch.randn(*shape, generator=generator, device=generator.device)
        return values.to(getattr(torch, dtype)).contiguous(memory_format=form)

    x = normal(layer["N"], layer["C"], *layer["in"])
    dy = normal(layer["N"], layer["K"], *layer["out"])
    w = normal(layer["K"], layer["C"] // layer["groups"], *layer["taps"])
    padding = [before for before, _ in layer["pads"]]
    if any(before != after for before, after in layer["pads"]):
        pads = [p for pair in reversed(layer["pads"]) for p in pair]
        x = torch.nn.functional.pad(x, pads).contiguous(memory_format=form)
        padding = [0] * len(padding)
    backward = torch.ops.aten.convolution_backward

    def gradient(x, dy):
        return backward(dy, x, w, None, layer["strides"], padding, layer["dilations"], False, [0] * len(padding),
                        layer["groups"], [False, True, False])

    return x, dy, gradient


def serve(kind, threads, make_answer):
    """Says the peer's version, then answers lines of JSON by make_answer(module)(request), a dictionary."""
    # The libraries' own chatter must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer):
        print(json.dumps(answer), file=answers, flush=True)

    module = load(kind, int(threads))
    answer = make_answer(module)
    say({"version": getattr(module, "__version__", "of unknown version")})
    for line in sys.stdin:
        try:
            say(answer(json.loads(line)))
        except Exception as error:  # what a peer cannot do is a result
            say({"how": "refuses", "error": str(error)})


class Worker:
    """A worker process that stays alive. It starts with the first request, and again after one that it did not survive."""

    def __init__(self, script, kind, python, threads, variables=None, silence_s=900):
        """silence_s: one that says nothing for so long is stopped."""
        self.command, self.kind = [python, script, "--worker", kind, str(threads)], kind
        self.environment, self.silence_s = environment() | (variables or {}), silence_s
        self.process, self.version = None, None

    def start(self):
        self.log = tempfile.TemporaryFile("w+")
        try:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                            env=self.environment)
        except OSError as error:
            self.log.close()
            raise DoesNotStart(f"{self.command[0]}: {error.strerror}") from error
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        ready = self.answer()
        if "version" not in ready:
            raise DoesNotStart(f"{self.command[0]} cannot run {TITLES.get(self.kind, self.kind)}: {ready['error']}")
        self.version = ready["version"]

    def answer(self):
        spoke = self.selector.select(self.silence_s)
        line = self.process.stdout.readline() if spoke else b""
        if line:
            return json.loads(line)
        self.process.kill()
        self.process.wait()
        self.log.seek(0)
        last = self.log.read().strip().splitlines()[-1:] or ["no message"]
        self.end()
        return {"how": "aborts" if spoke else "hangs", "error": f"ended: {last[0]}"}

    def ask(self, request):
        """The worker's answer. Where the peer fails, "how" is refuses, aborts or hangs, and "error" says more."""
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write((json.dumps(request) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it is gone: there will be no answer
        return self.answer()

    def end(self):
        """Its memory is given back; the next request starts it again."""
        if self.process is None:
            return
        self.selector.close()
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait()
        self.process.stdout.close()
        self.log.close()
        self.process = None
