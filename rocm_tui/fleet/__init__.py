"""Tuning many problems at once: on the devices of this machine, or on a Ray cluster."""
