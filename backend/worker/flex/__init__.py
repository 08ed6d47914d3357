"""Flex attention made again from what `run` has recorded of a call."""
