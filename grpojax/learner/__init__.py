"""Log-probs, packing, batching and the update."""
