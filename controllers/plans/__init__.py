"""One module a controller, found by its file name; `controllers/runtime/controller.py` is the page to read."""
