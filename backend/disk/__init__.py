"""Files in the cache dir: their locations, permissions and atomic writes."""
