"""Rules of admission: a request and a view of the cluster in, an answer out. No I/O, no clock, no chance."""
