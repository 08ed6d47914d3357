"""Traces of torch.profiler: events out of streamed JSON, and what they say of compiled graphs."""
