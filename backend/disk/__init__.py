"""Files below the cache dir: where they lie, who may write them, and how they are written whole."""
