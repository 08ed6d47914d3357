"""How the ranks of a job come to the same choices: no torch here."""
