"""How many small faults the tests notice: mutation testing of the rooms where a fault does harm.

`mutations` finds what can be changed in a module, `selection` which tests should notice it, and
`trial` makes the change in a private copy of the tree and runs them.
"""
