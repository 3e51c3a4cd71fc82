"""`koordlet demo`: a real service and real best-effort work on this machine: alone, unprotected and protected."""
