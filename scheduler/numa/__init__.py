"""One machine's CPUs and NUMA nodes as arithmetic: what to hand out, and aligned with what.

Values in, values out; the plugin beside it fetches and records. Imports the vocabulary only.
"""
