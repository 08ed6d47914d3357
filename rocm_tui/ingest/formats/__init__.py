"""One file a format: how it is recognised, and its reader. `registry` lists them."""
