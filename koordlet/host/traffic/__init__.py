"""Traffic classes: HTB classes of a link, and the classifiers that assign packets to them."""
