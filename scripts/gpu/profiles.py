"""profile: Nsight Compute on the layers of bench that are furthest behind the best peer; without peers, the slowest."""
import tempfile

import bench
import steps

WORST = 5
SHOWN = ("Duration", "Compute (SM) Throughput", "Memory Throughput", "DRAM Throughput", "L2 Hit Rate", "Registers Per Thread",
         "Achieved Occupancy", "Executed Ipc Active")


def worst_of(rows):
    """(stage, layer, algorithm) of the worst."""
    layers = {}
    for row in rows:
        layers.setdefault((row["stage"], row["layer"]), {})[row["column"]] = row
    measured = {key: of for key, of in layers.items() if "ms" in of.get("auto", {})}

    def behind(key):
        ratio = bench.ratio_of(measured[key])
        return (0, ratio) if ratio else (1, -measured[key]["auto"]["ms"])

    return [(*key, measured[key]["auto"]["algorithm"]) for key in sorted(measured, key=behind)[:WORST]]


def profile(session, _):
    tool = session.tool("ncu")
    worst = worst_of(session.read("bench"))
    if tool is not None and not worst:
        session.add(case="all", status="skipped", seconds=0, detail="run bench has measured nothing yet")
    if tool is None or not worst:
        return session.finish()
    left_out = []
    for stage, layer, algorithm in worst:
        dtype, lines, _ = bench.layers_of(stage)
        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
            file.write(lines[layer])
            file.flush()
            # The first kernels are those of one gradient: rearranging x and dy, the sums, the tree.
            command = [tool, "--clock-control", "none", "--set", "full", "--launch-count", "4", steps.PROGRAM, "bench", "--suite",
                       file.name, "--dtype", dtype, "-b", "cuda", "-a", algorithm, "--warmup", "0", "--repeat",
                       "1", "--min-time", "0", "--format", "csv"]
            case = f"{stage} {layer} {algorithm}"
            status, result = session.case(case, command, 110, judge=judge)
            if status == "left out":
                left_out.append(case)
            if result is not None:
                print(summary(case, result.out)[:1800], flush=True)
    return session.finish(left_out)


def judge(result):
    status, detail = steps.Session.judge(result)
    if status == "ok" and "Duration" not in result.out:
        return "failed", f"no counters: {result.last_line()}"
    return status, detail


def summary(case, text):
    lines = [case]
    for line in text.splitlines():
        if "Context" in line and "Stream" in line:
            lines.append("  " + line.strip()[:100])
        elif any(line.strip().startswith(name) for name in SHOWN):
            lines.append("    " + " ".join(line.split()))
    return "\n".join(lines)
