"""Runtime hooks: what a pod and its containers must run with, decided by rules from values alone.

`rule.py` is the page to read; `rules/` has one module for each rule. `decide.py` composes them. The reconciler
(`reconciler.py`), the NRI plugin and the runtime proxy apply the same decisions at different moments.
"""
