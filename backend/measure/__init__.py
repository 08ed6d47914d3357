"""What repeated measurements of choices prove: pure functions of samples, without torch."""
