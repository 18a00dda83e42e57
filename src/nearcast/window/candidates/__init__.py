"""Sources of candidates for buffers: which messages of the window may be among the best of a subscription.

    terms     kind `topk`: messages that share a term, found on term lists
    social    kind `social`: messages of close places, found on place lists, or that share a term, or any other

A source holds the lists of one window, follows the window, and supplies the compiled entry points `begin` and
`publish` of the buffers, which contain its search. `BufferedResults` calls these methods and does not depend on the
kind.
"""

from nearcast.window.candidates.social import SocialCandidates
from nearcast.window.candidates.source import CandidateSource
from nearcast.window.candidates.terms import TermCandidates

CANDIDATE_SOURCES: dict[str, type[CandidateSource]] = {"topk": TermCandidates, "social": SocialCandidates}
"""Kind to its source of candidates."""

__all__ = ["CANDIDATE_SOURCES", "CandidateSource", "SocialCandidates", "TermCandidates"]
