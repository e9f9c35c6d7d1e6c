"""Questions: a dataset on disk, its prompts as tokens, and batches addressed by their number."""
