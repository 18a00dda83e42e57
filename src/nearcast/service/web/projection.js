// Converts between coordinates of the service and of the map. The earth stays as it is; a plane is laid out one degree
// wide at the equator, where the map is flat. All other files use the coordinates of the service.

import { centreOf, eastOf, radiusOf, ringsOf, shapeOf } from "./regions.js";

const EARTH_RADIUS_M = 6_371_008.8;
const MAX_LATITUDE = 85;   // degrees that a Mercator map can show
const MAX_CIRCLE_M = 5e6;  // a larger circle is not a circle on such a map
const RAD = Math.PI / 180;

export class Projection {
  constructor({ bounds, metric, max_distance: maxDistance }) {
    const [xmin, ymin, xmax, ymax] = bounds;
    this.bounds = bounds;
    this.maxDistance = maxDistance;
    this.isEarth = metric === "haversine";
    this.origin = this.isEarth ? [0, 0] : [(xmin + xmax) / 2, (ymin + ymax) / 2];
    this.scale = this.isEarth ? 1 : 1 / (Math.max(xmax - xmin, ymax - ymin) || 1);
  }

  toMap([x, y]) {
    const latitude = (y - this.origin[1]) * this.scale;
    return [(x - this.origin[0]) * this.scale, Math.min(Math.max(latitude, -MAX_LATITUDE), MAX_LATITUDE)];
  }

  // The coordinates of a point on the map, clamped to the bounds.
  fromMap([lng, lat]) {
    const [xmin, ymin, xmax, ymax] = this.bounds;
    const x = lng / this.scale + this.origin[0], y = lat / this.scale + this.origin[1];
    return [Math.min(Math.max(x, xmin), xmax), Math.min(Math.max(y, ymin), ymax)];
  }

  distance([ax, ay], [bx, by]) {
    if (!this.isEarth) return Math.hypot(ax - bx, ay - by);
    const haversine = (a, b) => Math.sin((b - a) * RAD / 2) ** 2;
    const h = haversine(ay, by) + Math.cos(ay * RAD) * Math.cos(by * RAD) * haversine(ax, bx);
    return 2 * EARTH_RADIUS_M * Math.asin(Math.min(1, Math.sqrt(h)));
  }

  point(location, properties = {}) {
    return feature("Point", this.toMap(location), properties);
  }

  line(from, to, properties = {}) {
    return feature("LineString", [this.toMap(from), this.toMap(to)], properties);
  }

  // The features of a region; a circle that is none on the map has none.
  region(region, properties = {}) {
    const shape = shapeOf(region);
    if (shape === "box") return [this.box(region, properties)];
    if (shape === "circle") return [this.circle(centreOf(region), radiusOf(region), properties)].filter(Boolean);
    return ringsOf(region).map((rings) => feature("Polygon", rings.map((ring) => ring.map((at) => this.toMap(at))), properties));
  }

  // A box; on the earth one that crosses the date line continues beyond it.
  box([xmin, ymin, xmax, ymax], properties = {}) {
    const corners = [[xmin, ymin], [eastOf(xmin, xmax), ymin], [eastOf(xmin, xmax), ymax], [xmin, ymax], [xmin, ymin]];
    return feature("Polygon", [corners.map((corner) => this.toMap(corner))], properties);
  }

  // A circle of a radius; null if it is not a circle on the map.
  circle(centre, radius, properties = {}) {
    if (!(radius > 0) || (this.isEarth && radius > MAX_CIRCLE_M)) return null;
    const ring = Array.from({ length: 73 }, (_, i) => this.toMap(this.pointAt(centre, radius, i * 5 * RAD)));
    return feature("Polygon", [ring], properties);
  }

  // The point at a distance and an angle from another.
  pointAt([x, y], distance, angle) {
    if (!this.isEarth) return [x + distance * Math.cos(angle), y + distance * Math.sin(angle)];
    const arc = distance / EARTH_RADIUS_M, latitude = y * RAD;
    const end = Math.asin(Math.sin(latitude) * Math.cos(arc) + Math.cos(latitude) * Math.sin(arc) * Math.cos(angle));
    const turn = Math.atan2(Math.sin(angle) * Math.sin(arc) * Math.cos(latitude), Math.cos(arc) - Math.sin(latitude) * Math.sin(end));
    return [x + turn / RAD, end / RAD];
  }

  formatDistance(distance) {
    if (!this.isEarth) return Number(distance.toPrecision(3)).toString();
    return distance < 1000 ? `${Math.round(distance)} m` : `${(distance / 1000).toFixed(distance < 10_000 ? 1 : 0)} km`;
  }

  formatCoordinate(value, axis, digits = 4) {
    if (!this.isEarth) return Number(value.toFixed(digits)).toString();
    const direction = axis === 0 ? (value < 0 ? "W" : "E") : (value < 0 ? "S" : "N");
    return `${Math.abs(Number(value.toFixed(digits)))}° ${direction}`;
  }

  formatPlace(place) {
    const shape = shapeOf(place);
    if (shape === "point") return place.map((value, axis) => this.formatCoordinate(value, axis)).join(", ");
    if (shape === "circle") return `${this.formatDistance(radiusOf(place))} around ${this.formatPlace(centreOf(place))}`;
    if (shape === "polygon") return `${ringsOf(place).flat().reduce((sum, ring) => sum + ring.length - 1, 0)} corners`;
    const [xmin, ymin, xmax, ymax] = place, y = (ymin + ymax) / 2;
    const width = this.distance([xmin, y], [xmax, y]), height = this.distance([xmin, ymin], [xmin, ymax]);
    return `${this.formatDistance(width)} wide, ${this.formatDistance(height)} high`;
  }

  // Grid lines at round numbers across the bounds, each as [axis, value].
  gridLines() {
    return [0, 1].flatMap((axis) => {
      const low = this.bounds[axis], high = this.bounds[axis + 2], step = roundStep((high - low) / 6);
      const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
      return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => [axis, (first + i) * step]);
    });
  }
}

function feature(type, coordinates, properties) {
  return { type: "Feature", properties, geometry: { type, coordinates } };
}

function roundStep(minimum) {
  const power = 10 ** Math.floor(Math.log10(minimum || 1));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= minimum * 0.999);
}
