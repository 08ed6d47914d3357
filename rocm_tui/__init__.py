"""rocm-tui: watch Inductor's autotuning, pin a choice, prove that it is used."""

__version__ = "0.1.0"
