"""`rocm-tui watch`: the app, its screens, widgets, keys and colours. A screen calls actions."""
