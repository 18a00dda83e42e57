"""The social graph of users and places."""

from nearcast.social.graph import SocialGraph, SocialLink

__all__ = ["SocialGraph", "SocialLink"]
