"""Supervision of untrusted processes, and memory that outlives them. Imports no other room."""
