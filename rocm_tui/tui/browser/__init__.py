"""The screen in a browser: who may see it, the page, and a process of the screen for each page."""
