"""Why does a message match, or why not? Each part of the score, and the bar it must pass."""

from __future__ import annotations

from dataclasses import dataclass

from nearcast.model.identity import Id


@dataclass(frozen=True)
class Part:
    """One part of a score: `value` enters it `weight` times; a part without weight is a condition."""

    name: str
    value: float
    weight: float | None = None
    note: str = ""
    passes: bool = True
    """False if this part alone rules the message out."""


@dataclass(frozen=True)
class Explanation:
    """How a message fares for a subscription, part by part."""

    kind: str
    subscription: Id
    message: Id
    parts: tuple[Part, ...]
    score: float | None
    """None if some condition fails, whatever the score would be."""
    threshold: float | None = None
    """What the score is measured against: tau, or the worst of k results; None if anything passes."""
    passes: bool = False
    """True if the message is in the result, or would be if it were published now."""
    reason: str = ""

    def __str__(self) -> str:
        lines = [f"{self.kind} subscription {self.subscription!r}, message {self.message!r}: {self.reason}"]
        for part in self.parts:
            weight = "" if part.weight is None else f"x {part.weight:g}"
            mark = "" if part.passes else "  <- fails"
            lines.append(f"  {part.name:<10} {part.value:<10.6g} {weight:<10} {part.note}{mark}".rstrip())
        score = "none" if self.score is None else f"{self.score:.6g}"
        threshold = "none" if self.threshold is None else f"{self.threshold:.6g}"
        lines.append(f"  score {score}, bar {threshold}")
        return "\n".join(lines)
