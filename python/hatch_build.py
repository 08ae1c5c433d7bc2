"""Puts the program into the wheel: the installed tree that scripts/release names."""
import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Program(BuildHookInterface):
    def initialize(self, version, build_data):
        prefix, platform = os.environ.get("CONVGRAD_PREFIX"), os.environ.get("CONVGRAD_PLATFORM")
        if not prefix or not platform:
            raise SystemExit("convgrad's wheel has the program in it: scripts/release builds both")
        build_data.update(pure_python=False, tag=f"py3-none-{platform}")
        build_data["force_include"][prefix] = "convgrad/program"
