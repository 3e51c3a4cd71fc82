"""Why a pod is where it is, or nowhere."""
