"""Statistics of repeated measurements, and sensors of devices; without torch."""
