"""Running one choice: its tensors, its time, whether it is right, the process that may crash."""
