"""The garbage collector of a command."""

import subprocess
import sys

import subprocesses

VARIANTS = """
import gc, sys
from grpojax.__main__ import main
sys.argv = ["grpojax", "variants"]
main()
print(gc.isenabled(), *gc.get_threshold(), gc.get_freeze_count() > 100_000)
"""


def test_a_command_collects_rarely_and_never_what_imports_made():
  words = [sys.executable, "-c", VARIANTS]
  done = subprocess.run(words, env=subprocesses.environment(), capture_output=True, text=True, check=True)
  assert done.stdout.splitlines()[-1] == "True 20000 10 10 True"
