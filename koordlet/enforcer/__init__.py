"""The enforcer, the only writer of the node agent: intents in, kernel files written, journalled, leased and restored.

`lifecycle` is the way in, `enforcer` the step. Journal, audit and the writer touch the world; the other modules decide
from values or go through these three. `docs/enforcer.md` has the rules.
"""
