"""What screens are made of: lists of lines that repaint only the cells that changed."""
