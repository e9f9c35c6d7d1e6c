"""Multi-turn environments: what a turn is compared with."""
