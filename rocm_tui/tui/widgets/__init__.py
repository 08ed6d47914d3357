"""Widgets of the screens: lists of lines that repaint only the cells that changed."""
