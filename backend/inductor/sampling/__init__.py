"""Sampling choices again and again: how calls are timed, in what memory, in how many rounds."""
