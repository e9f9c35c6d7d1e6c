"""Runs the notebooks' `%%bash` cells: output in whole lines, without colours.  IPython starts with this file.

IPython's own magic passes output on in pieces of 100 bytes, which the page would show as lines.
"""

import os
import subprocess


def bash(line: str, cell: str) -> None:
  """Prints what the commands print.  Raises CalledProcessError if they fail."""
  env = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
  to_one = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
  done = subprocess.run(["bash", "-ec", cell], env=env, text=True, **to_one)
  print(done.stdout, end="")
  done.check_returncode()


get_ipython().register_magic_function(bash, "cell")  # noqa: F821
