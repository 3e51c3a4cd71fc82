"""Detection under real load: scenarios whose truth is known, the product that judges them, and simpler rules beside it.

`scenarios/` make the harm with public load generators, `stage.py` is all they touch, `proofs.py` measures whether the
harm was there at all without asking the product, and `detector.evaluation.scoring` scores product and peers alike.
"""
