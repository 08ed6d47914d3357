"""Frozen data that both packages share, in Inductor's own terms and without torch."""
