"""PyTorch's filter gradients on a device: a list of layers in a file, a line of JSON for each on standard output."""
import json
import pathlib
import statistics
import sys

import peers

ROTATED_BYTES = 256 << 20  # of copies of x and dy: more than a cache holds
RUNS = 20
SAMPLES = 7


def milliseconds(torch, layer, generator):
    """(median of a gradient, how they were started)."""
    x, dy, gradient = peers.torch_gradient(torch, layer, layer["dtype"], generator)
    each = (x.numel() + dy.numel()) * x.element_size()
    pairs = [(x, dy)] + [(x.clone(), dy.clone()) for _ in range(min(-(-ROTATED_BYTES // each), 1000))]
    runs = max(RUNS, len(pairs))

    def all_runs():
        for i in range(runs):
            gradient(*pairs[i % len(pairs)])

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # cuDNN measures its algorithms here, and allocates what they need
        for pair in pairs[:3]:
            gradient(*pair)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            all_runs()
        start, how = graph.replay, "graph"
    except Exception:  # an algorithm that cannot be recorded: its calls, one behind the other
        torch.cuda.synchronize()
        start, how = all_runs, "calls"
    times = []
    for i in range(SAMPLES + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        start()
        end.record()
        end.synchronize()
        if i > 0:
            times.append(begin.elapsed_time(end) / runs)
    return statistics.median(times), how


def main():
    layers = json.loads(pathlib.Path(sys.argv[1]).read_text())
    try:
        import torch
        if not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no device")
    except Exception as error:  # without it the column is empty, for this reason
        print(f"{type(error).__name__}: {' '.join(str(error).split())[:150]}", file=sys.stderr)
        sys.exit(3)
    torch.set_grad_enabled(False)
    torch.utils.deterministic.fill_uninitialized_memory = False  # it would be timed
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    generator = torch.Generator("cuda").manual_seed(1)
    for layer in layers:
        deterministic = layer["column"].endswith("deterministic")
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.deterministic = deterministic
        torch.use_deterministic_algorithms(deterministic)
        try:
            ms, how = milliseconds(torch, layer, generator)
            answer = {"status": "ok", "ms": ms, "how": how, "gflops": layer["flops"] / ms * 1e-6}
        except Exception as error:  # what a peer cannot do is a result
            answer = {"status": "none", "reason": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
        torch.cuda.empty_cache()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
