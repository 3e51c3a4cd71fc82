"""The only room of the controllers that waits: informers to views, plans to writes, leadership, metrics and health.

`controller.py` is the page to read before adding a controller.
"""
