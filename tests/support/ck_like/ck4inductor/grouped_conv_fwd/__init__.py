"""What PyTorch imports besides."""
