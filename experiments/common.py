"""Settings of all studies at `mini`: 40 steps, and the whole test split evaluated often enough for curves."""

MINI = {"steps": 40, "eval.prompts": 512, "eval.samples": 4, "eval.every": 10, "checkpoint.every": 10}
