"""Tuning on many devices and hosts: agents that work, transports to them, a driver that merges."""
