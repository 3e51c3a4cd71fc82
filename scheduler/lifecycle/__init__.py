"""Pods from their arrival to their end: what becomes of them between the queue and the snapshot."""
