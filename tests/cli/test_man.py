"""Manual pages: made from --help by the build (help2man), complete, and without complaints."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import BINARY, ROOT, ExampleFolder, commands, run


class Man(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="convgrad-man-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        subprocess.run([ROOT / "scripts/make_man", BINARY, cls.folder], check=True, timeout=120)
        cls.pages = {path.stem: path for path in cls.folder.iterdir()}

    @staticmethod
    def text(path):
        """As plain text, words unbroken."""
        page = subprocess.run(["man", "-l", path], check=True, capture_output=True, text=True,
                              env={**os.environ, "MANWIDTH": "10000", "LC_ALL": "C.UTF-8",
                                   "MAN_KEEP_FORMATTING": ""}).stdout
        return re.sub(r".\x08|\x1b\[[0-9;]*m", "", page).replace("‐", "-").replace("−", "-")

    def test_a_page_for_each_command(self):
        self.assertEqual(sorted(self.pages),
                         sorted("convgrad-" + name if name else "convgrad" for name in commands()))

    def test_each_option_and_its_text(self):
        for name in commands():
            page = self.text(self.pages["convgrad-" + name if name else "convgrad"])
            squeezed = re.sub(r"\s+", " ", page)
            rows = re.findall(r"(?m)^  (-[^ \n]+)(?: [^ \n]+)?(?:\s+)([^\n]+)$",
                              run(*[name] * bool(name), "--help").out)
            self.assertGreater(len(rows), 1)
            for names, text in rows:
                self.assertIn(names.replace(",-", ", -"), page)
                self.assertIn(re.sub(r"\s+", " ", text), squeezed)
            # help2man took what stands behind it for another option's name.
            self.assertNotRegex(self.pages["convgrad-" + name if name else "convgrad"].read_text(), r"\\fR {3,}")

    def test_sections(self):
        page = self.text(self.pages["convgrad"])
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "NOTES", "EXIT STATUS",
                        "ENVIRONMENT", "EXAMPLES", "SEE ALSO"):
            self.assertRegex(page, rf"(?m)^{section}$")
        self.assertRegex(page, r"NAME\n +convgrad - \w+")
        version = run("--version").out.split()[1]
        self.assertIn(f"convgrad {version}", page)
        self.assertIn("convgrad-verify(1)", page[page.index("SEE ALSO"):])
        for name in commands():
            page = self.text(self.pages["convgrad-" + name if name else "convgrad"])
            for line in ExampleFolder.examples(name):
                self.assertIn("$ " + line, re.sub(" +", " ", page))

    def test_no_complaints_of_man(self):
        for path in self.pages.values():
            done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path],
                                  capture_output=True, text=True, check=True,
                                  env={**os.environ, "LC_ALL": "C.UTF-8", "MANROFFSEQ": "",
                                       "MANWIDTH": "80"})
            self.assertEqual(done.stderr, "", path.name)

    def test_no_complaints_of_mandoc(self):
        for path in self.pages.values():
            done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", path],
                                  capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""), path.name)

    def test_the_same_pages_every_time(self):
        again = self.folder / "again"
        subprocess.run([ROOT / "scripts/make_man", BINARY, again], check=True, timeout=120)
        try:
            for path in self.pages.values():
                self.assertEqual((again / path.name).read_bytes(), path.read_bytes())
        finally:
            shutil.rmtree(again)
