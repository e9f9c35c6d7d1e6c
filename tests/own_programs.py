"""Says how many programs a process of two finds in the cache of programs, and how many it writes.

`python own_programs.py FOLDER`: one program of the devices of both, and one of its own.
"""

import sys
from collections import Counter
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from grpojax.runtime import processes, program_cache

seen = Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event.rpartition("/")[2]]))
processes.initialize({})
program_cache.use(Path(sys.argv[1]))
for devices in jax.devices(), jax.local_devices():
  rows = NamedSharding(Mesh(np.array(devices), "data"), PartitionSpec("data"))
  jax.block_until_ready(jax.jit(lambda: jax.numpy.arange(8.0) ** 2, out_shardings=rows)())
print(f"found {seen['cache_hits']}, wrote {seen['cache_misses']}")
