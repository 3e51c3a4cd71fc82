"""Two schedulers against a real API server, through proxies that kill, cut and delay (`python -m bench.ha`)."""
