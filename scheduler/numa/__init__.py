"""CPUs and NUMA nodes of one machine as arithmetic: CPUs to allocate, and their alignment.

Values in, values out; the plugin beside it fetches and records. Imports the vocabulary only.
"""
