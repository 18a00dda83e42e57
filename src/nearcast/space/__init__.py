"""Space: points, boxes, and distances under two metrics."""

from nearcast.space.box import Box
from nearcast.space.metric import METRICS, Metric
from nearcast.space.space import Point, Space

__all__ = ["METRICS", "Box", "Metric", "Point", "Space"]
