"""What an op makes of its inputs, in a wider type, and how far off a choice's result may be.

`problem` says what the op computes. `wrong` finds what no rounding at all explains, `rounding` what
sums in float32 do not lose, element by element.
"""
