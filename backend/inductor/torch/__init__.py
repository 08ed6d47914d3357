"""The only folder with private names of torch, and with knowledge of its versions' differences."""
