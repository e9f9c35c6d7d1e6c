"""Reads a peer's config and says it in our flags: a table for each peer, one reader, one translation."""
