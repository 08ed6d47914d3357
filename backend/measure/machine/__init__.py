"""How the device is doing while it is measured: clock, power, temperature, what slows it down."""
