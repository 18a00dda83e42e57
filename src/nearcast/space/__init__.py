"""Space: points, regions, and distances under two metrics."""

from nearcast.space.box import Box
from nearcast.space.metric import METRICS, Metric
from nearcast.space.region import Circle, MultiPolygon, Polygon, Region
from nearcast.space.space import Point, Space

__all__ = ["METRICS", "Box", "Circle", "Metric", "MultiPolygon", "Point", "Polygon", "Region", "Space"]
