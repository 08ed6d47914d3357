"""How the ranks of a job agree on choices; without torch."""
