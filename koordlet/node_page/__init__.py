"""The node page: what the agent knows of its node as one HTML document, read-only; decides from values alone.

`values.py` is what the page shows, `page.py` the document, `application.py` serves it, and says to which clients.
"""
