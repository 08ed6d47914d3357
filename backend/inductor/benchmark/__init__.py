"""Running one choice: its tensors, its time, its correctness, and the process that may crash."""
