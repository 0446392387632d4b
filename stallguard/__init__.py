"""stallguard: guards a training, and the API for scripts that want to say more.

Loaded also inside the user's training environment, where our dependencies are missing: standard library only.
"""

__version__ = "0.1.0"
