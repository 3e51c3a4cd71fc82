"""Explanations of placements: scores, rejections and pending pods."""
