"""Triton templates with AMD's knobs. Nothing here imports torch; Triton only for compiling."""
