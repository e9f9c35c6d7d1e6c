"""Devices, processes, files and screens: all that knows no model, no reward and no objective."""
