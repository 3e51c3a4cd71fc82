"""Admission: what koord-manager changes and refuses of objects before the API server stores them.

`rules/` decides, from a review and a view of the cluster alone; `server.py`, `watched.py`, `rotation.py` and
`registration.py` touch the world; `serve.py` puts them together. docs/webhooks.md has the rules.
"""
