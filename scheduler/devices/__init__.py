"""GPUs, NICs and other devices of nodes as arithmetic: what a request means, which devices serve it, what it leaves.

Values in, values out; the plugin beside it fetches and records. Imports the vocabulary and `scheduler.numa` only.
"""
