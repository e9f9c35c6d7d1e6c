"""What a config would take on a slice nobody has: compiled for it, and read, never run."""
