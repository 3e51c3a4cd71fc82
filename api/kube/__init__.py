"""Kubernetes objects and quantities as the API server spells them."""
