"""Tests of what is in packaging/ beside the packages themselves, which `make test-packages` and `make test-image` try."""

import os
import pathlib
import re
import shutil
import subprocess
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


class Scripts(unittest.TestCase):
    def test_installed_scripts_are_sound(self):
        if not shutil.which("shellcheck") and not os.environ.get("CI"):
            self.skipTest("shellcheck is missing (package shellcheck)")
        scripts = [*ROOT.glob("packaging/debian/anabranch.*"), ROOT / "packaging/openwrt/files/anabranch.init"]
        self.assertEqual(len(scripts), 4)
        ran = subprocess.run(["shellcheck", "--shell=sh", *scripts], stdout=subprocess.PIPE, text=True)
        self.assertEqual((ran.returncode, ran.stdout), (0, ""))


class OpenWrt(unittest.TestCase):
    def test_the_recipe_is_of_this_version(self):
        recipe = (ROOT / "packaging/openwrt/Makefile").read_text()
        self.assertEqual(re.search(r"PKG_VERSION:=(\S+)", recipe)[1], VERSION)


class OldState(unittest.TestCase):
    def test_a_state_directory_of_this_version_is_kept(self):
        self.assertTrue((ROOT / "crates/cli/tests/old_state" / VERSION / "device/key").is_file(), "scripts/make_old_state.sh")


if __name__ == "__main__":
    unittest.main()
