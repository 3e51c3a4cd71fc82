"""Prediction of peaks: decaying histograms of usage, and what production pods request but will not use."""
