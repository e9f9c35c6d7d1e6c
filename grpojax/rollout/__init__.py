"""One step's groups: prompts drawn, completions sampled and scored."""
