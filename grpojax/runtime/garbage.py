"""The garbage collector, kept off what lives as long as the process: modules, and what tracing makes."""

import gc


def collect_rarely() -> None:
  """Collects garbage less often from here on, and never again what there is already.

  Importing and tracing make a million objects of which hardly one dies, and by its defaults Python looks
  through all of them again and again: a tenth of a short run's CPU time.
  """
  gc.set_threshold(20_000, 10, 10)  # objects, and collections of the generation before; 700, 10, 10
  gc.freeze()
