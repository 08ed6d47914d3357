"""The one folder with private names of torch: what differs between its versions is known here."""
