"""bench and info --peaks: what they take and what they print."""
import json
import shutil

import numpy as np

from harness import ALL_ALGORITHMS, ALGORITHMS, BINARY, DTYPES, ROOT, CliTest, Problem

QUICK = ["--repeat", "2", "--min-time", "0", "--no-peaks"]
TINY = ["--op", "conv2d", "--input-shape", "2,6,5,3", "-k", "3", "--out-channels", "4", "-p", "same"]
SUITE = """# name count problem
first conv2d n2 h6 w5 c3 k4 r3 s3 pad_same   # the rest is a comment

second\t5\tdepthwise NCHW n2 h6 w5 c3 k6 r3 s2 stride2
third conv3d n1 d4 h5 w6 c2 k4 t2 r2 s2 groups2 stride1,2,1 pad_before1,0,1 pad_after0,2,1
"""


class BenchTest(CliTest):
    def bench(self, *args, **more):
        return self.succeed("bench", *args, **more)

    def report(self, *args, **more):
        return super().report("bench", *QUICK, *args, **more)

    def suite(self, text=SUITE, name="layers.tsv"):
        self.write(name, text)
        return ["--suite", name]

    def refuse(self, status, parts, *args, **more):
        self.refuses(status, parts, "bench", *args, *QUICK, **more)


class Report(BenchTest):
    def test_fields_of_one_problem(self):
        report = self.report(*TINY, "-t", 2)
        self.assertEqual((report["command"], report["status"]), ("bench", "ok"))
        time = report["timing_ms"]["kernel"]
        self.assertEqual(time["n"], 2)
        self.assertGreater(time["min"], 0)
        self.assertLessEqual(time["min"], time["median"])
        self.assertLessEqual(time["median"], time["p95"])
        self.assertGreaterEqual(time["cv"], 0)
        flops = 2 * 2 * 6 * 5 * 9 * 3 * 4
        self.assertEqual(report["work"]["flops"], flops)
        self.assertAlmostEqual(report["perf"]["gflops"], flops / time["median"] * 1e-6, places=2)
        self.assertAlmostEqual(report["perf"]["gbytes_per_s"],
                               4 * (2 * 30 * 7 + 108) / time["median"] * 1e-6, places=2)
        self.assertEqual(report["tensors"]["out_backprop"]["shape"], [2, 6, 5, 4])
        self.assertEqual(report["execution"]["threads"], 2)
        self.assertEqual(report["execution"]["requested_algorithm"], "auto")
        self.assertIn(report["execution"]["algorithm"], ALL_ALGORITHMS)
        self.assertEqual(len(report["problems"]), 1)
        for key in ("name", "attrs", "execution", "work", "timing_ms", "perf"):
            self.assertEqual(report["problems"][0][key], report[key])
        self.assertIsNone(report["peaks"])

    def test_peaks_and_percentages(self):
        report = CliTest.report(self, "bench", *TINY, "--repeat", "1", "--min-time", "0", "-t", "1")
        peaks, perf = report["peaks"], report["perf"]
        self.assertEqual(peaks["threads"], 1)
        self.assertGreater(peaks["fma_gflops"]["float32"], 0)
        self.assertIsNone(peaks["fma_gflops"]["float64"])
        self.assertIsNone(peaks["amx_bf16_gflops"])  # no bfloat16 problem
        self.assertAlmostEqual(perf["percent_of_fma"],
                               100 * perf["gflops"] / peaks["fma_gflops"]["float32"], places=6)
        if peaks["read_gbytes_per_s"]:
            self.assertAlmostEqual(perf["percent_of_read_bandwidth"],
                                   100 * perf["gbytes_per_s"] / peaks["read_gbytes_per_s"], places=6)
        self.assertIn(perf["limit"], ("fma", "read"))
        self.assertEqual(perf["percent_of_limit"],
                         max(perf["percent_of_fma"], perf["percent_of_read_bandwidth"] or 0))
        self.assertIsNone(report["timing_ms"]["kernel"]["cv"])  # of one run

    def test_repeats(self):
        report = self.report(*TINY, "--repeat", 1, "--warmup", 0, "--min-time", 0.05)
        self.assertGreater(report["timing_ms"]["kernel"]["n"], 1)

    def test_lists(self):
        report = self.report(*TINY, "--dtype", "float32,bfloat16", "-a", "direct,im2col_gemm", "-t",
                             "1,2")
        self.assertEqual([(p["attrs"]["dtype"], p["execution"]["algorithm"], p["execution"]["threads"])
                          for p in report["problems"]],
                         [(d, a, t) for d in ("float32", "bfloat16")
                          for a in ("direct", "im2col_gemm") for t in (1, 2)])
        self.assertNotIn("timing_ms", report)
        report = self.report(*TINY, "--dtype", "all", "-a", "all")
        self.assertEqual({p["attrs"]["dtype"] for p in report["problems"]}, set(DTYPES))
        for problem in report["problems"]:
            self.assertEqual(problem["execution"]["requested_algorithm"],
                             problem["execution"]["algorithm"])
        self.assertLessEqual(set(ALGORITHMS), {p["execution"]["algorithm"] for p in report["problems"]})

    def test_files(self):
        problem = Problem(n=2, size=(6, 5), c=3, k=4, taps=(3, 3))
        problem.save(self.folder, "bfloat16")
        report = self.report("-i", "x.npy", "-g", "dy.npy", *problem.flags())
        self.assertEqual(report["attrs"]["dtype"], "bfloat16")
        self.assertEqual(report["tensors"]["input"]["file"], "x.npy")
        self.assertEqual(self.listing(), ["dy.npy", "x.npy"])

    def test_layers_of_options(self):
        env = {"CONVGRAD_DTYPE": "float64", "CONVGRAD_THREADS": "1,2", "CONVGRAD_ALGORITHM": "direct",
               "CONVGRAD_REPEAT": "3", "CONVGRAD_NO_PEAKS": "true", "CONVGRAD_MIN_TIME": "0"}
        problems = CliTest.report(self, "bench", *TINY, env=env)["problems"]
        self.assertEqual([(p["execution"]["threads"], p["execution"]["algorithm"], p["attrs"]["dtype"],
                           p["timing_ms"]["kernel"]["n"]) for p in problems],
                         [(1, "direct", "float64", 3), (2, "direct", "float64", 3)])


class Text(BenchTest):
    def test_table(self):
        result = self.bench(*self.suite(), *QUICK, "--dtype", "float32,float64")
        lines = result.out.splitlines()
        self.assertRegex(lines[0], r"^name +dtype +algorithm +threads +median ms +min ms")
        self.assertEqual([line.split()[0] for line in lines[1:]],
                         ["first"] * 2 + ["second"] * 2 + ["third"] * 2 + ["total"] * 2)
        self.assertIn("(7 convolutions)", lines[-1])
        self.assertEqual([line for line in lines if line != line.rstrip()], [])
        with_peaks = self.bench(*TINY, "--repeat", 1, "--min-time", 0, "-t", 1).out.splitlines()
        self.assertRegex(with_peaks[0], r"^peaks on 1 thread: float32 multiply-adds [\d.]+ GFLOP/s")
        self.assertRegex(self.succeed("info", "--peaks", "--threads", 1).out, r"peaks on 1 thread: float32 .*; multiply-adds by \w+\n")


class Suite(BenchTest):
    def test_a_suite(self):
        report = self.report(*self.suite())
        self.assertEqual([p["name"] for p in report["problems"]], ["first", "second", "third"])
        self.assertEqual([p["count"] for p in report["problems"]], [1, 5, 1])
        first, second, third = (p["attrs"]["line"] for p in report["problems"])
        self.assertIn("conv2d float32 NHWC n2 h6 w5 c3 k4 r3 s3", first)
        self.assertIn("depthwise float32 NCHW n2 h6 w5 c3 k6 r3 s2 stride2", second)
        self.assertIn("conv3d float32 NDHWC n1 d4 h5 w6 c2 k4 t2 r2 s2 groups2 stride1,2,1 "
                      "pad_before1,0,1 pad_after0,2,1", third)
        total = report["totals"][0]
        self.assertEqual((total["problems"], total["convolutions"]), (3, 7))
        self.assertAlmostEqual(total["median_ms"], sum(
            p["count"] * p["timing_ms"]["kernel"]["median"] for p in report["problems"]), places=4)

    def test_only(self):
        report = self.report(*self.suite(), "--only", "ir")
        self.assertEqual([p["name"] for p in report["problems"]], ["first", "third"])

    def test_broken_lines_are_named(self):
        good = SUITE.splitlines()[1].split("#")[0]
        # What else is wrong with a problem's line: problem_line_test.cpp.
        for change, part in ((("pad_same", "groups2"), "2 groups do not divide"), (("first", "first 0"), "count: 0"),
                             (("first", "first 9223372036854775807"), "count: 9223372036854775807, expected from 1 to"),
                             (("first", "first 1 1"), "'1' is not an operation")):
            self.assertIn(change[0], good)
            self.refuse(3, ["--suite: layers.tsv, line 3: ", part],
                        *self.suite(f"# header\n\n{good.replace(*change)}\n"))
        self.refuse(3, ["line 2: the name first is there twice"], *self.suite(f"{good}\n{good}\n"))
        self.refuse(3, ["no problem"], *self.suite("# nothing\n"))
        self.refuse(3, ["--suite: cannot open none.tsv: No such file"], "--suite", "none.tsv")
        self.refuse(3, ["is a folder"], "--suite", ".")
        self.refuse(3, ["--only", "'zzz'"], *self.suite(), "--only", "zzz")


class SuitesByName(BenchTest):
    NAMES = {path.stem for path in (ROOT / "bench/layers").glob("*.tsv")}

    def test_each_is_listed(self):
        report = CliTest.report(self, "bench", "--list-suites")
        self.assertEqual({suite["name"] for suite in report["suites"]}, self.NAMES)
        lines = self.bench("--list-suites").out.splitlines()
        for line, suite in zip(lines, report["suites"], strict=True):
            rows = [row for row in (ROOT / f"bench/layers/{suite['name']}.tsv").read_text().splitlines()
                    if not row.startswith("#")]
            self.assertEqual(suite["problems"], len(rows))
            self.assertRegex(line, rf"^{suite['name']} +{len(rows)} problems  \w.*\w")

    def test_a_name_wins_over_a_file_of_the_folder(self):
        self.write("unet3d", SUITE)
        report = self.report("--suite", "unet3d", "--only", "conv1x1x1", "-t", 1)
        self.assertEqual([p["count"] for p in report["problems"]], [1])
        self.assertEqual(len(self.report("--suite", "./unet3d")["problems"]), 3)
        for name in ("unet4d", "unet"):
            self.refuse(3, [f"--suite: cannot open {name}: ", "did you mean 'unet3d'?"],
                        "--suite", name)
        self.refuse(3, ["cannot open zzz", "--list-suites names the suites"], "--suite", "zzz")

    def test_networks(self):
        report = self.report("--network", "squeezenet1_1", "--batch", 1, "-t", 1)
        layers = [row.split("\t") for row in (ROOT / "bench/layers/networks.tsv").read_text().splitlines()
                  if row.startswith("torchbench/squeezenet1_1/")]
        out = self.succeed("bench", "--network", "squeezenet1_1", "--batch", 1, "--repeat", 1, "--min-time", 0, "--no-peaks").out
        self.assertRegex(out, r"(?m)^total .*\(26 convolutions\)$")
        self.assertEqual([(p["name"], p["count"]) for p in report["problems"]], [(row[0], int(row[1])) for row in layers])
        self.assertEqual({p["tensors"]["input"]["shape"][0] for p in report["problems"]}, {1})
        self.assertEqual(len(self.report("--suite", "unet3d", "--only", "conv1x1x1", "--batch", 1)["problems"]), 1)
        self.refuse(3, ["--network: 'resnet18' is more than one", "timm/resnet18 or torchbench/resnet18"], "--network", "resnet18")
        self.refuse(3, ["--network: 'squeezenet1_2' is none", "did you mean 'squeezenet1_1'?"], "--network", "squeezenet1_2")
        self.refuse(2, ["--batch: given without"], "--problem", "conv2d n1 h4 w4 c1 k1 r1 s1", "--batch", 2)
        self.refuse(2, ["given twice"], "--network", "squeezenet1_1", "--suite", "unet3d")

    def test_they_move_with_the_program(self):
        installed = self.folder / "moved/bin/convgrad"
        installed.parent.mkdir(parents=True)
        shutil.copy(BINARY, installed)
        (self.folder / "moved/share/convgrad/suites").mkdir(parents=True)
        self.write("moved/share/convgrad/suites/mine.tsv", "# Three layers.\n" + SUITE)
        done = self.bench("--list-suites", program=installed)
        self.assertEqual(done.out, "mine              3 problems  Three layers.\n")
        shutil.rmtree(self.folder / "moved/share")
        self.refuses(4, ["none is installed"], "bench", "--list-suites", program=installed)


class ProblemLines(BenchTest):
    """Descriptors of benchdnn and lines of MIOpenDriver, as flags of ours."""

    DENSE = "--op conv2d --filter-sizes 3,3,64,128 --explicit-paddings 1,1,1,1"
    LINES = (
        ("g1mb16_ic64ih56iw56_oc128oh56ow56_kh3kw3_sh1sw1_ph1pw1_dh0dw0_n\"res:2a\"", f"{DENSE} --input-shape 16,56,56,64"),
        # By default 2 images, and the padding and outputs that follow.
        ("ic4ih8oc5kh3", "--op conv2d --filter-sizes 3,3,4,5 --explicit-paddings 0,0,0,0 --input-shape 2,8,8,4"),
        ("ic4ih8oc5oh8kh4", "--op conv2d --filter-sizes 4,4,4,5 --explicit-paddings 1,2,1,2 --input-shape 2,8,8,4"),
        # At the end as much as the outputs take: less than in front, or more; dilations counted from 0.
        ("mb1ic4ih8oc5oh4kh3sh2ph1", "--op conv2d --filter-sizes 3,3,4,5 --strides 2,2 --explicit-paddings 1,0,1,0 "
                                     "--input-shape 1,8,8,4"),
        ("mb1ic4ih8oc5oh8kh3ph0", "--op conv2d --filter-sizes 3,3,4,5 --explicit-paddings 0,2,0,2 --input-shape 1,8,8,4"),
        ("mb1ic4ih8iw9oc5kh3kw2dh1", "--op conv2d --filter-sizes 3,2,4,5 --dilations 2,1 --explicit-paddings 0,0,0,0 "
                                     "--input-shape 1,8,9,4"),
        ("g6mb1ic6ih8oc12kh3ph1", "--op depthwise --filter-sizes 3,3,6,2 --explicit-paddings 1,1,1,1 --input-shape 1,8,8,6"),
        ("g3mb1ic6ih8oc12kh3ph1", "--op conv2d --filter-sizes 3,3,2,12 --explicit-paddings 1,1,1,1 --input-shape 1,8,8,6"),
        ("mb1ic4iw9oc5kw3pw1", "--op conv2d --filter-sizes 1,3,4,5 --explicit-paddings 0,0,1,1 --input-shape 1,1,9,4"),
        ("mb1ic4id5oc3kd2", "--op conv3d --filter-sizes 2,2,2,4,3 --explicit-paddings 0,0,0,0,0,0 --input-shape 1,5,5,5,4"),
        ("g2mb1ic4id5ih6iw7oc6kd1kh2kw3sd2pw1", "--op conv3d --filter-sizes 1,2,3,2,6 --strides 2,1,1 --explicit-paddings "
                                                "0,0,0,0,1,1 --input-shape 1,5,6,7,4"),
        ("conv -n 16 -c 64 -H 56 -W 56 -k 128 -y 3 -x 3 -p 1 -q 1 -u 1 -v 1 -l 1 -j 1 -g 1",
         f"{DENSE} --data-format NCHW --filter-format OIHW --input-shape 16,64,56,56"),
        ("./bin/MIOpenDriver convfp16 -n 2 -m conv -F 4 -t 1 -k 6 -H 8 -W 9 -u 2 -l 2 -I NHWC -O NHWC -f NHWC",
         "--op conv2d --filter-sizes 3,3,3,6 --strides 2,1 --dilations 2,1 --explicit-paddings 0,0,0,0 --filter-format OHWI "
         "--input-shape 2,8,9,3 --dtype float16"),
        ("convbfp16 --batchsize 1 --in_channels 6 --in_h 8 --in_w 8 --out_channels 6 --group_count 6 --fil_h 5 --fil_w 5 "
         "--conv_stride_h 2 --conv_stride_w 2 --pad_h 1 --pad_w 1 -z default", "--op depthwise --filter-sizes 5,5,6,1 "
         "--strides 2,2 --explicit-paddings 1,1,1,1 --data-format NCHW --filter-format OIHW --input-shape 1,6,8,8 "
         "--dtype bfloat16"),
        # Whole commands of benchdnn, and lines of oneDNN.
        ("benchdnn --mode=P --conv --dir=BWD_W --dt=bf16 --stag=axb mb2ic4ih8oc5oh6kh3ph0n\"bf16\"",
         "--op conv2d --filter-sizes 3,3,4,5 --explicit-paddings 0,0,0,0 --input-shape 2,8,8,4 --dtype bfloat16"),
        ("--conv --dt=f16:f16:f32 --stag=abx --batch=none mb2ic4ih8oc5oh6kh3ph0",
         "--op conv2d --filter-sizes 3,3,4,5 --explicit-paddings 0,0,0,0 --input-shape 2,4,8,8 --data-format NCHW "
         "--dtype float16"),
        ("onednn_verbose,v1,primitive,exec,cpu,convolution,jit_dw:sve_256,backward_weights,src:f32::blocked:acdb::f0 "
         "wei:f32::blocked:decab::f0 dst:f32::blocked:acdb::f0,,alg:convolution_direct,"
         "g24mb1_ic24oc24_ih6oh3kh3sh2dh0ph1_iw6ow3kw3sw2dw0pw1,0.02",
         "--op depthwise --filter-sizes 3,3,24,1 --strides 2,2 --explicit-paddings 1,0,1,0 --input-shape 1,6,6,24"),
        ("dnnl_verbose,exec,cpu,convolution,jit:avx512_core,backward_weights,src_bf16::blocked:aBcd16b:f0 "
         "wei_f32::blocked:ABcd16b16a:f0,,alg:convolution_direct,mb2_ic16oc16_ih6oh4kh3sh1dh0ph0_iw6ow4kw3sw1dw0pw0,0.02",
         "--op conv2d --filter-sizes 3,3,16,16 --explicit-paddings 0,0,0,0 --input-shape 2,16,6,6 --data-format NCHW "
         "--dtype bfloat16"),
        ("conv -_ 3 -n 1 -c 4 -k 2 -! 5 -H 6 -W 7 -@ 2 -y 1 -x 3 -# 2 -$ 1 -^ 2",
         "--op conv3d --filter-sizes 2,1,3,4,2 --strides 2,1,1 --dilations 2,1,1 --explicit-paddings 1,1,0,0,0,0 "
         "--data-format NCDHW --filter-format OIDHW --input-shape 1,4,5,6,7"))

    def test_each_is_the_problem_of_flags_and_of_a_line(self):
        self.suite("".join(f"{line}\n" for line, _ in self.LINES))
        for problem, (line, flags) in zip(self.report("--suite", "layers.tsv", "-t", 1)["problems"], self.LINES, strict=True):
            with self.subTest(line):
                for again in (self.report(*flags.split()), self.report("--problem", problem["attrs"]["line"])):
                    self.assertEqual((problem["attrs"], problem["tensors"]), (again["attrs"], again["tensors"]))

    def test_text_and_names(self):
        text = self.bench("--problem", "mb1ic4ih8oc5kh3", *QUICK).out.splitlines()
        self.assertEqual(text[0], "problem: mb1ic4ih8oc5kh3: conv2d float32 NHWC n1 h8 w8 c4 k5 r3 s3")
        self.assertTrue(text[2].startswith("mb1ic4ih8oc5kh3 "))
        lines = f'{SUITE}ic4ih8oc5kh3n"a:b*3"\nconv -n 1 -c 4 -k 2 -# 1  # 3-D\nmine mb1ic4ih8oc5kh3\nconv2d h3 w3 c1 k1 r1 s1\n'
        self.assertEqual([p["name"] for p in self.report(*self.suite(lines))["problems"]],
                         ["first", "second", "third", "a:b*3", "conv-n1-c4-k2-#1", "mine",
                          "conv2d float32 NHWC n1 h3 w3 c1 k1 r1 s1"])

    def test_formats_and_dtypes_of_flags_win(self):
        line = "convfp16 -n 1 -c 4 -k 2 -H 5 -W 6"
        report = self.report("--problem", line, "-f", "NHWC", "--filter-format", "HWIO", "--out-dtype", "float32")
        self.assertEqual((report["tensors"]["input"]["shape"], report["attrs"]["filter_format"], report["attrs"]["dtype"],
                          report["attrs"]["out_dtype"]), ([1, 5, 6, 4], "HWIO", "float16", "float32"))
        self.assertEqual(self.report("--problem", line, "--dtype", "float64")["attrs"]["dtype"], "float64")

    def test_what_cannot_be_said_is_named(self):
        good = "conv -n 1 -c 4 -k 2"
        for line, parts in (
                ("ic4ih8oc5kh3xx2", ["'xx2'", "mb16ic64"]), ("ic4ih-8oc5kh3", ["'ih-8'"]), ("ic4oc5", ["spatial axis"]),
                ("ih8oc5kh3", ["ic is missing"]), ("ic4ih8oc5kh3sh0", ["sh is missing"]),
                ("ic4id8ih8oc5kd3kh3", ["d, h and w"]), ("ic4ih3oc5kh5", ["'kh5'"]), ("ic4ih8oc5oh5kh3", ["'oh5'", "at least 6"]),
                (f"{good} -m trans", ["'-m trans'"]), (f"{good} -z same", ["'-z same'"]), (f"{good} -r 1", ["'-r 1'"]),
                (f"{good} -H", ["'-H' has no value"]), (f"{good} -u 0", ["'-u 0'", "from 1"]),
                (f"{good} -I NHWC", ["fil_layout are NHWC, NCHW, NCHW", "for all"]),
                (f"{good} -d x.bin", ["'-d x.bin'", "a line without it"]),
                ("convint8 -n 1", ["'convint8'", "convbfp16"]), ("benchdnn --conv --batch=shapes", ["benchdnn or MIOpenDriver: conv2d n16"]),
                ("--conv --dt=s8 ic4ih8oc5kh3", ["--dt: 's8' is unknown"]), ("MIOpenDriver pool -n 1", ["'pool'"])):
            self.refuse(2, ["--problem: ", *parts], f"--problem={line}")
            self.refuse(3, ["--suite: layers.tsv, line 1: ", *parts], *self.suite(line + "\n"))
        self.refuse(3, ["groups"], "--problem", f"{good} -g 3")
        line = ["--problem", "ic4ih8oc5kh3"]
        for flag in (["-s", 2], ["--op", "conv2d"], ["-k", 3], ["--out-channels", 4], ["--groups", 2]):
            self.refuse(2, ["given with --problem"], *line, *flag)
        self.refuse(2, ["the problem is given twice"], *line, *TINY)

    def test_generate(self):
        result = self.succeed("generate", "--problem", "g4mb2ic4ih8oc8oh4kh3sh2ph1", "-o", "made")
        self.assertIn("--problem 'depthwise float32 NHWC n2 h8 w8 c4 k8 r3 s3 stride2 pad_before1' -o dw.npy", result.out)
        self.assertEqual(np.load(self.folder / "made/out_backprop.npy").shape, (2, 4, 4, 8))
        self.succeed("generate", "--problem", "convfp16 -n 1 -c 4 -k 2 -H 5 -W 6", "-o", "half")
        self.assertEqual(np.load(self.folder / "half/gradient.npy").shape, (2, 4, 3, 3))
        self.assertEqual(np.load(self.folder / "half/gradient.npy").dtype, np.float16)
        self.refuses(2, ["--shape: given with --problem"], "generate", "--problem", "ic4ih8oc5kh3", "-o", "no",
                     "--shape", "1,8,8,4")


class Tags(BenchTest):
    def test_they_are_kept(self):
        tags = ["--tag", "commit=1a2b", "--tag", "note=a=b, \"c\"", "--tag", "commit=3c4d"]
        want = {"commit": "3c4d", "note": 'a=b, "c"'}
        self.assertEqual(self.report(*TINY, *tags)["tags"], want)
        problem = Problem(n=2, size=(6, 5), c=3, k=4, taps=(3, 3))
        problem.save(self.folder)
        self.assertEqual(CliTest.report(self, *problem.args(), *tags)["tags"], want)
        self.write("jobs.jsonl", json.dumps(problem.job(output="dw.npy")) + "\n")
        self.assertEqual(CliTest.report(self, "batch", "jobs.jsonl", *tags)["tags"], want)

    def test_from_a_variable(self):
        self.assertEqual(self.report(*TINY, env={"CONVGRAD_TAG": "host=a,b"})["tags"], {"host": "a,b"})
        self.assertNotIn("tags", self.report(*TINY))
        for word in ("commit", "=x", "a b=c", "ü=1"):
            self.refuse(2, ["--tag", "KEY=VALUE", "A-Z, a-z, 0-9, '_', '-' and '.'"],
                        *TINY, "--tag", word)


class Refused(BenchTest):
    def test_usage(self):
        suite = self.suite()
        for parts, args in (
                (["the problem is missing"], ["--op", "conv2d"]),
                (["the problem is given twice"], [*TINY, *suite]),
                (["the problem is given twice"], [*TINY, "-i", "x.npy"]),
                (["--op is missing"], ["--input-shape", "2,6,5,3"]),
                (["--multiplier", "--out-channels"], [*TINY, "--multiplier", 2]),
                (["--strides: given with --suite"], ["-s", 2, *suite]),
                (["--only: given without --suite or --network"], [*TINY, "--only", "x"]),
                (["--dtype: 'flaot32'", "did you mean 'float32'"], [*TINY, "--dtype", "flaot32"]),
                (["--dtype", "empty element"], [*TINY, "--dtype", "float32,,float64"]),
                (["--threads: 'x'"], [*TINY, "-t", "1,x"]),
                (["--repeat", "'0'"], [*TINY, "--repeat", 0]),
                (["--min-time", "'-1'"], [*TINY, "--min-time=-1"])):
            self.refuse(2, parts, *args)
        self.refuse(2, ["--dtype: given with --input"], "--op", "conv2d", "-i", "x.npy", "-g", "dy.npy", "-k", 3,
                    "-p", "same", "--dtype", "float32")

    def test_a_kernel_that_cannot(self):
        big = ["--op", "conv2d", "--input-shape", "1,2,2,2048", "-k", 1, "--out-channels", 2048, "-p", "same"]
        self.refuse(4, ["--algorithm", "streaming"], *big, "-a", "streaming")

    def test_memory_is_counted_before_it_is_taken(self):
        huge = ["--op", "conv2d", "--input-shape", "1000000,1000,1000,3", "-k", 3, "--out-channels", 4, "-p", "same"]
        self.refuse(5, ["the machine has", "of tensors"], *huge)
        big = ["--op", "conv2d", "--input-shape", "8,512,512,3", "-k", 3, "--out-channels", 4, "-p", "same"]
        self.refuse(5, ["--memory-limit is 64.0 MiB", "56.0 MiB of tensors"], *big, "--memory-limit", "64MiB")
        beyond = ["--op", "conv2d", "--input-shape", f"{2**62},8,8,3", "-k", 3, "--out-channels", 4, "-p", "same"]
        self.refuse(3, ["63 bits"], *beyond)
