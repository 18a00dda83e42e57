"""The social graph of users and places."""

from nearcast.social.graph import SocialGraph

__all__ = ["SocialGraph"]
