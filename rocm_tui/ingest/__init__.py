"""From the bytes of sources to records: `follow/` brings the bytes, `formats/` reads them."""
