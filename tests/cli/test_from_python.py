"""README.md and the pages of docs, run as printed: python and sh blocks, in order, in an empty folder for each page, and for
each section of from-python.md.

A section runs with the first Python that has what it imports: this one, or one of those in
CONVGRAD_TEST_PYTHONS (paths, with colons between).
"""
import ast
import os
import pathlib
import re
import subprocess
import sys

from harness import BINARY, ROOT, CliTest, clean_environment

README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs/from-python.md").read_text()
PYTHONS = [sys.executable, *filter(None, os.environ.get("CONVGRAD_TEST_PYTHONS", "").split(":"))]
TIMEOUT_S = 600


def blocks_of(text):
    """[(language, code)]"""
    return re.findall(r"^```(python|sh)\n(.*?)^```", text, re.M | re.S)


def sections():
    """{title: [(language, code)]} of those that have code to run; the first is the page's beginning."""
    found = {}
    for part in re.split(r"(?m)^## ", PAGE.removeprefix("# ")):
        blocks = blocks_of(part)
        if blocks:
            found[part.partition("\n")[0]] = blocks
    return found


def slug(title):
    """The anchor that a title gets where pages are shown."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def imports(blocks):
    """The packages that python blocks import, without Python's own."""
    names = set()
    for language, code in blocks:
        if language != "python":
            names.update({"matplotlib"} if "convgrad.plot" in code else ())
            continue
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                names.update(alias.name.split(".")[0] for alias in node.names)
    return sorted(names - set(sys.stdlib_module_names))


def python_with(packages):
    check = ("import importlib.util, sys; "
             "sys.exit(any(importlib.util.find_spec(name) is None for name in sys.argv[1:]))")
    for python in PYTHONS:
        if subprocess.run([python, "-c", check, *packages], check=False,
                          env=environment()).returncode == 0:
            return python
    return None


def environment():
    path = f"{pathlib.Path(BINARY).resolve().parent}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    return clean_environment({"PATH": path, "PYTHONPATH": str(ROOT / "python"), "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu",
                              "CUDA_VISIBLE_DEVICES": ""})


class FromPython(CliTest):
    def run_section(self, title, blocks):
        packages = imports(blocks)
        python = python_with(packages)
        if python is None:
            self.skipTest(f"{title}: no Python here has {', '.join(packages)}")
        for language, code in blocks:
            command = [python, "-c", code] if language == "python" else ["bash", "-euc", code]
            done = subprocess.run(command, cwd=self.folder, env={**environment(), "TMPDIR": str(self.folder)},
                                  capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
            self.assertEqual(done.returncode, 0, f"{code}\n{done.stdout}\n{done.stderr[-3000:]}")
            if "convgrad verify" in code:
                self.assertRegex(done.stdout, "(?m)^MATCH: ")

    def test_the_readme(self):
        blocks = blocks_of(README)
        self.assertGreaterEqual(len(blocks), 3)
        self.assertTrue(any("convgrad verify" in code for _, code in blocks))
        self.run_section("README", blocks)

    def test_links_between_pages(self):
        folders = [ROOT / name for name in ("docs", "examples", "python", "testdata", "src", "cmd")]
        pages = [*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
        texts = {page: re.sub(r"(?ms)^```.*?^```", "", page.read_text()) for page in pages}
        titles = {page: {slug(title) for title in re.findall(r"(?m)^#+ (.*)", text)} for page, text in texts.items()}
        links = [(page, link) for page, text in texts.items() for link in re.findall(r"\]\(((?!http)[^)\s]+)\)", text)]
        self.assertGreater(len(links), 100)
        for page, link in links:
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            self.assertTrue(target.exists(), f"{page}: {link}")
            if anchor:
                self.assertIn(anchor, titles[target], f"{page}: {link}")

    def test_the_page_has_them(self):
        self.assertEqual(list(sections()), ["From Python and back", "PyTorch", "Triton and CUDA kernels", "16 bits", "TensorFlow", "JAX",
                                            "numpy, bfloat16 by its bits", "Transposed convolutions", "ml_dtypes"])
        for title, blocks in sections().items():
            self.assertIn("python", {language for language, _ in blocks}, title)
            if title.startswith("numpy"):
                self.assertEqual(imports(blocks), ["numpy"], title)


for page in sorted((ROOT / "docs").glob("*.md")):
    if page.name != "from-python.md" and blocks_of(page.read_text()):
        setattr(FromPython, f"test_page_{page.stem}",
                lambda self, page=page: self.run_section(page.name, blocks_of(page.read_text())))
for number, (name, code) in enumerate(sections().items()):
    method = "test_" + re.sub(r"\W+", "_", name).lower()
    setattr(FromPython, method,
            lambda self, name=name, code=code: self.run_section(name, code))
