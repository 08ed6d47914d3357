"""Does everything work with this PyTorch? `make matrix` asks each one that is known.

A smoke suite drives the real commands of this environment on a small real program that runs in the
environment of the torch to try, and answers yes or no, with the reason, for each feature.
"""
