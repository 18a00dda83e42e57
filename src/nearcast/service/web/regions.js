// Places of subscriptions as the service has them: a point [x, y], or a region: a box [xmin, ymin, xmax, ymax], polygons
// in GeoJSON, or a circle as a GeoJSON feature with a point and a radius.

export const SHAPES = ["box", "circle", "polygon"];   // of a region

export function shapeOf(place) {
  if (Array.isArray(place)) return place.length === 2 ? "point" : "box";
  return place.type === "Feature" ? "circle" : "polygon";
}

export const isRegion = (place) => shapeOf(place) !== "point";

export const circle = (coordinates, radius) => ({ type: "Feature", geometry: { type: "Point", coordinates }, properties: { radius } });

// A polygon whose shell has these corners.
export const polygon = (corners) => ({ type: "Polygon", coordinates: [[...corners, corners[0]]] });

// The polygons of a region, each a list of rings: its shell, and then its holes.
export const ringsOf = ({ type, coordinates }) => type === "MultiPolygon" ? coordinates : [coordinates];

export const radiusOf = (region) => region.properties.radius;

export function centreOf(place) {
  const shape = shapeOf(place);
  if (shape === "point") return place;
  if (shape === "circle") return place.geometry.coordinates.slice(0, 2);
  const [xmin, ymin, xmax, ymax] = shape === "box" ? place : extentOf(ringsOf(place).flatMap(([shell]) => shell));
  const x = (xmin + eastOf(xmin, xmax)) / 2;
  return [xmax < xmin && x > 180 ? x - 360 : x, (ymin + ymax) / 2];
}

// The east side of a box; beyond 180 degrees if it crosses the date line.
export const eastOf = (xmin, xmax) => xmax < xmin ? xmax + 360 : xmax;

export function extentOf(points) {
  return points.reduce(([xmin, ymin, xmax, ymax], [x, y]) => [Math.min(xmin, x), Math.min(ymin, y), Math.max(xmax, x), Math.max(ymax, y)],
    [Infinity, Infinity, -Infinity, -Infinity]);
}
