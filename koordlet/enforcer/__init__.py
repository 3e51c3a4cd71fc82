"""The enforcer: the only writer. Intents and a time come in; what is written is journalled, leased and put back.

Files that decide: `amounts`, `budgets`, `conflicts`, `journal_lines`, `ordering`, `protection`, `values`. Files that
touch the world, all through `koordlet.host`: `hands`, `journal`, `audit`, `restoring`, `enforcer`.
"""
