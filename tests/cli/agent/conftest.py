"""The launchd of the jobs' own tests."""

from tests.agent.conftest import fake, home

__all__ = ["fake", "home"]
