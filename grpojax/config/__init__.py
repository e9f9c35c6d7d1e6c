"""Defines what a config may say: the table of keys, checks of each key and between keys, flags, workdirs."""
