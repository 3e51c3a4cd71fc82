"""koord-scheduler: places pods by load, interference, gangs, quotas, topology and devices."""
