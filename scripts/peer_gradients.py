"""Filter gradients of other libraries on the CPU, each in the Python that its variable names: measure_false_alarms.py --peers.

A request has op, dtype, taps, strides, dilations, pads, groups, dw_shape; x and dy, files of float32 or float64 numbers of the dtype,
channels last; and out, where gradients go: OUT0.npy and so on, float64, in the order of the answer's names.
"""
import collections
import os
import pathlib
import sys

import numpy as np

import peers


class Peer:
    """Makes {name: gradient [taps, c, k]} of a request."""

    def __init__(self, module):
        self.module = module

    def __call__(self, request):
        x, dy = np.load(request["x"]), np.load(request["dy"])
        names = []
        for name, gradient in self.gradients(request, x, dy):
            np.save(f"{request['out']}{len(names)}.npy", np.ascontiguousarray(gradient, np.float64))
            names.append(name)
        return {"names": names}

    @staticmethod
    def padded(request, x):
        return np.pad(x, [(0, 0), *map(tuple, request["pads"]), (0, 0)])


class Torch(Peer):
    def gradients(self, request, x, dy):
        torch, rank = self.module, len(request["taps"])
        dtype = getattr(torch, request["dtype"])
        x, dy = (torch.from_numpy(values).movedim(-1, 1).to(dtype) for values in (self.padded(request, x), dy))
        w = torch.zeros(dy.shape[1], x.shape[1] // request["groups"], *request["taps"], dtype=dtype)
        last = torch.channels_last if rank == 2 else torch.channels_last_3d
        forms = {"channels first": torch.contiguous_format, "channels last": last}
        for (name, form), onednn in [(f, o) for f in forms.items() for o in (True, False)]:
            torch.backends.mkldnn.enabled = onednn
            result = torch.ops.aten.convolution_backward(
                dy.contiguous(memory_format=form), x.contiguous(memory_format=form), w.contiguous(memory_format=form), None,
                request["strides"], [0] * rank, request["dilations"], False, [0] * rank, request["groups"], [False, True, False])[1]
            yield (f"PyTorch, {name}, {'oneDNN' if onednn else 'native'}",
                   result.permute(*range(2, rank + 2), 1, 0).to(torch.float64).numpy())


class TensorFlow(Peer):
    def gradients(self, request, x, dy):
        tf, op, rank = self.module, request["op"], len(request["taps"])
        if op == "depthwise" and max(request["dilations"]) > 1:
            raise RuntimeError("its depthwise op ignores dilations")
        x, dy = (tf.cast(values, request["dtype"]) for values in (self.padded(request, x), dy))
        result = getattr(tf.raw_ops, peers.TENSORFLOW_OPS[op])(
            input=x, out_backprop=dy, filter_sizes=request["dw_shape"], strides=[1, *request["strides"], 1],
            dilations=[1, *request["dilations"], 1], padding="VALID", data_format="NHWC" if rank == 2 else "NDHWC")
        library = "Eigen" if os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0" else "oneDNN"
        yield f"TensorFlow, {library}", tf.cast(result, tf.float64).numpy()


class Jax(Peer):
    def gradients(self, request, x, dy):
        jax, space = self.module, "DHW"[-len(request["taps"]):]
        jax.config.update("jax_enable_x64", True)
        x, dy = (jax.numpy.asarray(values).astype(request["dtype"]) for values in (x, dy))

        def forward(w):
            return jax.lax.conv_general_dilated(
                x, w, request["strides"], request["pads"], rhs_dilation=request["dilations"],
                dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"), feature_group_count=request["groups"])

        w = jax.numpy.zeros((*request["taps"], x.shape[-1] // request["groups"], dy.shape[-1]), request["dtype"])
        yield "JAX", np.asarray(jax.vjp(forward, w)[1](dy)[0].astype("float64"))


class OnnxRuntime(Peer):
    """The gradient as a convolution of x with dy: images are its channels, strides and dilations change places."""

    def gradients(self, request, x, dy):
        import onnx
        onnxruntime, groups = self.module, request["groups"]
        kind = getattr(onnx.TensorProto, {"float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16"}[request["dtype"]])
        x, dy = (np.swapaxes(np.moveaxis(values, -1, 1), 0, 1).astype(request["dtype"]) for values in (self.padded(request, x), dy))
        node = onnx.helper.make_node("Conv", ["x", "dy"], ["dw"], strides=request["dilations"], dilations=request["strides"])
        ends = [onnx.helper.make_tensor_value_info(name, kind, None) for name in ("x", "dy", "dw")]
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "gradient", ends[:2], ends[2:]),
                                       opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        parts = []
        for a, b in zip(np.split(x, groups), np.split(dy, groups)):
            dw = session.run(None, {"x": a, "dy": b})[0]
            parts.append(np.moveaxis(dw[(..., *map(slice, request["taps"]))], (0, 1), (-2, -1)))
        yield "ONNX Runtime", np.concatenate(parts, -1)


class Tinygrad(Peer):
    def gradients(self, request, x, dy):
        tensor, dtypes = self.module.Tensor, self.module.dtypes
        dtype = getattr(dtypes, request["dtype"])
        x, dy = (tensor(np.ascontiguousarray(np.moveaxis(values, -1, 1))).cast(dtype).realize() for values in (x, dy))
        w = tensor.zeros(dy.shape[1], x.shape[1] // request["groups"], *request["taps"], dtype=dtype).contiguous().realize()
        w.requires_grad = True
        pads = [pad for pair in reversed(request["pads"]) for pad in pair]
        y = x.conv2d(w, groups=request["groups"], stride=request["strides"], dilation=request["dilations"], padding=pads)
        dw = y.gradient(w, gradient=dy)[0].cast(dtypes.float64).numpy()
        yield "tinygrad", np.moveaxis(dw, (1, 0), (-2, -1))


class OpenBlas(Peer):
    """numpy's product of the matrix of a tap's inputs and that of dy."""

    def gradients(self, request, x, dy):
        if request["dtype"].endswith("16"):
            raise RuntimeError("no product of 16-bit matrices")
        x, groups = self.padded(request, x), request["groups"]
        y = dy.reshape(-1, groups, dy.shape[-1] // groups)
        dw = []
        for tap in np.ndindex(*request["taps"]):
            at = [slice(t * d, t * d + (o - 1) * s + 1, s)
                  for t, d, o, s in zip(tap, request["dilations"], dy.shape[1:-1], request["strides"])]
            columns = x[(slice(None), *at)].reshape(len(y), groups, -1)
            dw.append(np.concatenate([np.ascontiguousarray(columns[:, g]).T @ np.ascontiguousarray(y[:, g]) for g in range(groups)], 1))
        yield "numpy", np.reshape(dw, (*request["taps"], -1, dy.shape[-1]))


# kind: (class, variable that names its Python, variables of its own)
PEERS = {"torch": (Torch, "TORCH_PYTHON", {}), "tensorflow": (TensorFlow, "TENSORFLOW_PYTHON", {}),
         "tensorflow, Eigen": (TensorFlow, "TENSORFLOW_PYTHON", {"TF_ENABLE_ONEDNN_OPTS": "0"}), "jax": (Jax, "JAX_PYTHON", {}),
         "onnxruntime": (OnnxRuntime, "ONNXRUNTIME_PYTHON", {}), "tinygrad": (Tinygrad, "TINYGRAD_PYTHON", {"DEV": "CPU"}),
         "numpy": (OpenBlas, "NUMPY_PYTHON", {})}


def start():
    """{kind: worker} of those that can be imported; says which."""
    workers = {}
    for kind, (_, variable, variables) in PEERS.items():
        worker = peers.Worker(os.path.abspath(__file__), kind, os.environ.get(variable, sys.executable), 2, variables)
        try:
            worker.start()
            print(peers.TITLES.get(kind, kind), worker.version)
            workers[kind] = worker
        except peers.DoesNotStart as error:
            print(error)
    return workers


def known_wrong(name, layer, kind):
    """Why a peer's gradient need not pass, or None."""
    if name.startswith("PyTorch") and name.endswith("native") and layer.dtype == "bfloat16":
        return "sums in bfloat16"
    if layer.dtype == "float16" and name.startswith("PyTorch") and (name.endswith("native") or not peers.has("avx512_fp16")):
        return "sums in float16"  # oneDNN has float16 by AVX512-FP16 alone; without it PyTorch takes its own
    if layer.dtype == "float16" and name.startswith("TensorFlow"):
        return "sums in float16"
    if layer.dtype == "bfloat16" and (name == "TensorFlow, Eigen" or name.startswith("TensorFlow") and layer.op == "depthwise"):
        return "sums in bfloat16"
    if "subnormal" in kind and (name.startswith(("TensorFlow", "JAX")) or layer.dtype == "bfloat16" and name.startswith("PyTorch")):
        return "flushes subnormal numbers"
    return None


def results_of(workers, folder, layer, x, dy):
    """({name: gradient}, how often each was refused)"""
    own = np.float64 if layer.dtype == "float64" else np.float32
    request = {"op": layer.op, "dtype": layer.dtype, "taps": layer.taps, "strides": layer.strides, "dilations": layer.dilations,
               "pads": layer.pads, "groups": layer.groups, "dw_shape": layer.dw_shape}
    for name, values in (("x", x), ("dy", dy)):
        request[name] = str(pathlib.Path(folder) / f"{name}_widened.npy")
        np.save(request[name], values.astype(own))
    results, refused = {}, collections.Counter()
    for kind, worker in workers.items():
        request["out"] = str(pathlib.Path(folder) / kind)
        answer = worker.ask(request)
        if "error" in answer:
            refused[f"{kind} {answer['how']}: {answer['error'].splitlines()[0].split('}} ')[-1][:90]}"] += 1
        for i, name in enumerate(answer.get("names", [])):
            # All have output channels last; of depthwise [R, S, 1, C*M].
            results[name] = np.load(f"{request['out']}{i}.npy").reshape(layer.dw_shape)
    return results, refused


if __name__ == "__main__":
    peers.serve(sys.argv[2], sys.argv[3], PEERS[sys.argv[2]][0])
