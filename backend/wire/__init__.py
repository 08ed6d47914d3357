"""Typed JSON in and out: dataclasses to text and back, by one codec."""
