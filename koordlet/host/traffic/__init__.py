"""Traffic classes: HTB classes of a link, and how packets are assigned to them."""
