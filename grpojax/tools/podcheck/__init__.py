"""Check of a config for a slice nobody has: its programs are compiled and read, never run."""
