"""Recommender: requests and limits of containers, from what they used and from the time that they lost.

Usage and its percentiles are the Vertical Pod Autoscaler's arithmetic over all containers at once. What it does not
know is the loss: how much a larger request would have cured, and the limit at which throttling ends.
"""
