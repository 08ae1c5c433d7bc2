"""smoke (the main job, whose file is compared), tests and sanitize: each kernel's cases, each a process of its own."""
import tempfile

import steps

# Name, algorithm, dtype and problem: small integers, whose sums are exact, so every bit must be the reference's. A case more
# than the one before it, where a hang is to be found: one slab of one chunk; several slabs; several chunks and slices.
SMOKE = (
    ("simt", "cuda_simt_gemm", "float32", "conv2d --shape 2,9,11,5 -k 3 --out-channels 7 -p same"),
    ("tree", "cuda_simt_gemm", "float64", "conv2d --shape 40,32,32,3 -k 1 --out-channels 4 -p same"),
    ("streaming", "cuda_streaming", "float32", "depthwise --shape 3,17,19,33 -k 3 -p same"),
    ("streaming in rings", "cuda_streaming", "bfloat16", "depthwise --shape 3,57,61,72 -k 5 -s 2 -p same"),
    ("streaming in groups", "cuda_streaming", "float16", "conv2d --shape 3,40,29,64 -k 3 --groups 16 --out-channels 64 -p same"),
    ("mma", "cuda_mma", "float16", "conv2d --shape 2,14,14,64 -k 3 --out-channels 136 -p same"),
    ("mma wide", "cuda_mma", "bfloat16", "conv2d --shape 2,14,14,128 -k 1 --out-channels 128 -p same"),
    ("f64", "cuda_mma_f64", "float64", "conv2d --shape 2,14,14,24 -k 3 --out-channels 40 -p same"),
    ("packing", "cuda_mma", "float16", "conv2d --shape 2,5,13,14 -k 3 --out-channels 9 -p same -f NCHW"),
    ("cudnn", "cudnn", "float32", "conv2d --shape 2,14,14,16 -k 3 --out-channels 32 -p same"),
    ("wgmma 1x1, one slab", "cuda_wgmma", "float16", "conv2d --shape 1,8,8,128 -k 1 --out-channels 128 -p same"),
    ("wgmma 1x1", "cuda_wgmma", "bfloat16", "conv2d --shape 3,28,28,128 -k 1 --out-channels 136 -p same"),
    ("wgmma 3x3 padded", "cuda_wgmma", "float16", "conv2d --shape 2,14,14,72 -k 3 --out-channels 128 -p same"),
    ("wgmma stride 2", "cuda_wgmma", "float16", "conv2d --shape 2,28,28,64 -k 3 -s 2 --out-channels 64 -p same"),
    ("wgmma stride 3", "cuda_wgmma", "bfloat16", "conv2d --shape 2,29,30,64 -k 3 -s 3 --out-channels 64 -p same"),
    ("bf16x3 1x1, one slab", "cuda_wgmma_bf16x3", "float32", "conv2d --shape 1,8,8,128 -k 1 --out-channels 128 -p same"),
    ("bf16x3 3x3 padded", "cuda_wgmma_bf16x3", "float32", "conv2d --shape 2,14,14,72 -k 3 --out-channels 128 -p same"),
    ("bf16x3 stem", "cuda_wgmma_bf16x3", "float32", "conv2d --shape 3,57,61,3 -k 7 -s 2 --out-channels 64 -p same -f NCHW"))


def show_machine(session):
    """Prints what is there: the driver's view, the program's, the libraries that it finds."""
    for command in (["nvidia-smi"], [steps.PROGRAM, "info"]):
        result = session.run(command, 30)
        text = result.out.partition("\nalgorithms")[0] if result.status == 0 else result.last_line()
        print("\n".join(line[:110] for line in text.splitlines()[:20]), flush=True)
    loaded = session.run(["env", "LD_TRACE_LOADED_OBJECTS=1", steps.PROGRAM], 10).out
    missing = [line.strip() for line in loaded.splitlines() if "not found" in line]
    staged = sum(str(steps.HERE) in line for line in loaded.splitlines())
    print(f"libraries    {', '.join(missing) or 'all found'}, {staged} of them staged; of peers: "
          f"{' '.join(steps.peers_libraries()) or 'none'}")
    print(f"staged from  {' '.join((steps.HERE / 'version').read_text().split())}", flush=True)
    return not missing


def problem_options(problem):
    words = problem.split()
    options = ["--op", words[0]]
    for flag, value in zip(words[1::2], words[2::2]):
        if flag not in ("--shape", "--out-channels"):
            options += [flag, value]
    return options


def smoke(session):
    found = show_machine(session)
    for name, algorithm, dtype, problem in SMOKE:
        if not session.wants(name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            made = session.run([steps.PROGRAM, "generate", *problem.split(), "--dtype", dtype, "-o", folder], 20)
            if made.status != 0:
                session.add(case=name, status="failed", seconds=made.seconds, detail=made.last_line())
                continue
            how = ["-b", "cuda", "-a", algorithm] if session.backend == "cuda" else ["-b", "cpu"]
            compute = [*problem_options(problem), "-i", f"{folder}/input.npy", "-g", f"{folder}/out_backprop.npy", *how]
            compare = [steps.PROGRAM, "compare", f"{folder}/dw.npy", f"{folder}/gradient.npy", "--bitwise"]
            session.case(name, [steps.PROGRAM, *compute, "-o", f"{folder}/dw.npy"], 30,
                         judge=lambda done: session.judge(session.run(compare, 20) if done.status == 0 else done))
    return session.finish() or (0 if found else 1)


def kernels(session):
    return [name for name in session.algorithms() if name != "cudnn_any"]  # cudnn's test runs both


def judge_tests(result):
    status, detail = steps.Session.judge(result)
    lines = [line for line in result.out.splitlines() if "ERROR" in line or "logged" in line or "FATAL" in line]
    return (status, f"{detail} {' '.join(lines[:2])[:200]}".strip()) if status == "failed" else (status, detail)


def tests(session):
    program = steps.HERE / "convgrad_gpu_tests"
    listed = session.run([program, "-ltc", "-ni"], 30).out
    names = [line.strip() for line in listed.splitlines() if line.startswith("on a device")]
    for kernel in kernels(session):
        for name in names:
            if ("cuDNN" in name) != (kernel == "cudnn"):
                continue
            case = f"{kernel}: {name.removeprefix('on a device, ')}"
            # Commas part patterns, as do the escapes that doctest has none of.
            pattern = name.replace(",", "?")
            session.case(case, [program, f"-tc={pattern}"], 120, {"CONVGRAD_TEST_KERNEL": kernel}, judge_tests)
    return session.finish()


def sanitize(session):
    tool = session.tool("compute-sanitizer")
    if tool is None:
        return session.finish()
    for check in ("memcheck", "racecheck", "synccheck", "initcheck"):
        for kernel in kernels(session):
            if kernel == "cudnn":
                continue
            command = [tool, "--tool", check, "--error-exitcode", "9", "--print-limit", "5",
                       steps.HERE / "convgrad_gpu_tests", "-tc=*several stages*,*only meets padding*"]
            session.case(f"{check}: {kernel}", command, 90, {"CONVGRAD_TEST_KERNEL": kernel}, judge_tests)
    return session.finish()
