"""What a person set and what the program remembers: `config.toml` and `state.json`."""
