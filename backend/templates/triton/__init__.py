"""Triton templates with AMD's knobs. Nothing here imports torch; Triton only where it compiles."""
