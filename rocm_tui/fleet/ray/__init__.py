"""A fleet on a Ray cluster. `fleet` is the driver's side; `cluster` is Ray's driver, a process of
its own; `actor` is what runs on the nodes, one for each device."""
