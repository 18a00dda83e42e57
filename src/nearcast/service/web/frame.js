// Where on the map is a place of the world? On the earth where it is; a plane is laid out a degree wide at the equator,
// where the map is flat. Everything outside this file speaks the world's coordinates.

const EARTH_M = 6_371_008.8;
const POLE = 85;           // degrees that a Mercator map can show
const WIDEST_M = 5e6;      // a larger circle is no circle on such a map
const RAD = Math.PI / 180;

export class Frame {
  constructor({ bounds, metric, max_distance: reach }) {
    const [xmin, ymin, xmax, ymax] = bounds;
    this.bounds = bounds;
    this.reach = reach;
    this.isEarth = metric === "haversine";
    this.origin = this.isEarth ? [0, 0] : [(xmin + xmax) / 2, (ymin + ymax) / 2];
    this.scale = this.isEarth ? 1 : 1 / (Math.max(xmax - xmin, ymax - ymin) || 1);
  }

  toMap([x, y]) {
    const lat = (y - this.origin[1]) * this.scale;
    return [(x - this.origin[0]) * this.scale, Math.min(Math.max(lat, -POLE), POLE)];
  }

  // The place of the world, within its bounds.
  toWorld([lng, lat]) {
    const [xmin, ymin, xmax, ymax] = this.bounds;
    const x = lng / this.scale + this.origin[0], y = lat / this.scale + this.origin[1];
    return [Math.min(Math.max(x, xmin), xmax), Math.min(Math.max(y, ymin), ymax)];
  }

  distance([ax, ay], [bx, by]) {
    if (!this.isEarth) return Math.hypot(ax - bx, ay - by);
    const half = (a, b) => Math.sin((b - a) * RAD / 2) ** 2;
    const h = half(ay, by) + Math.cos(ay * RAD) * Math.cos(by * RAD) * half(ax, bx);
    return 2 * EARTH_M * Math.asin(Math.min(1, Math.sqrt(h)));
  }

  point(at, properties = {}) {
    return feature("Point", this.toMap(at), properties);
  }

  line(from, to, properties = {}) {
    return feature("LineString", [this.toMap(from), this.toMap(to)], properties);
  }

  box([xmin, ymin, xmax, ymax], properties = {}) {
    const corners = [[xmin, ymin], [xmax, ymin], [xmax, ymax], [xmin, ymax], [xmin, ymin]];
    return feature("Polygon", [corners.map((corner) => this.toMap(corner))], properties);
  }

  // Everything within a distance; null where that is no circle on the map.
  circle(centre, radius, properties = {}) {
    if (!(radius > 0) || (this.isEarth && radius > WIDEST_M)) return null;
    const ring = Array.from({ length: 73 }, (_, i) => this.toMap(this.away(centre, radius, i * 5 * RAD)));
    return feature("Polygon", [ring], properties);
  }

  away([x, y], radius, angle) {
    if (!this.isEarth) return [x + radius * Math.cos(angle), y + radius * Math.sin(angle)];
    const arc = radius / EARTH_M, lat = y * RAD;
    const there = Math.asin(Math.sin(lat) * Math.cos(arc) + Math.cos(lat) * Math.sin(arc) * Math.cos(angle));
    const turned = Math.atan2(Math.sin(angle) * Math.sin(arc) * Math.cos(lat), Math.cos(arc) - Math.sin(lat) * Math.sin(there));
    return [x + turned / RAD, there / RAD];
  }

  saidDistance(distance) {
    if (!this.isEarth) return Number(distance.toPrecision(3)).toString();
    return distance < 1000 ? `${Math.round(distance)} m` : `${(distance / 1000).toFixed(distance < 10_000 ? 1 : 0)} km`;
  }

  saidAt(value, axis, digits = 4) {
    if (!this.isEarth) return Number(value.toFixed(digits)).toString();
    const way = axis === 0 ? (value < 0 ? "W" : "E") : (value < 0 ? "S" : "N");
    return `${Math.abs(Number(value.toFixed(digits)))}° ${way}`;
  }

  saidPlace(place) {
    if (place.length === 2) return place.map((value, axis) => this.saidAt(value, axis)).join(", ");
    const [xmin, ymin, xmax, ymax] = place, y = (ymin + ymax) / 2;
    const wide = this.distance([xmin, y], [xmax, y]), high = this.distance([xmin, ymin], [xmin, ymax]);
    return `${this.saidDistance(wide)} wide, ${this.saidDistance(high)} high`;
  }

  // Lines at round numbers across the bounds: [axis, value] each.
  gridLines() {
    return [0, 1].flatMap((axis) => {
      const from = this.bounds[axis], to = this.bounds[axis + 2], step = roundStep((to - from) / 6);
      const first = Math.ceil(from / step - 1e-9), last = Math.floor(to / step + 1e-9);
      return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => [axis, (first + i) * step]);
    });
  }
}

function feature(type, coordinates, properties) {
  return { type: "Feature", properties, geometry: { type, coordinates } };
}

function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(least || 1));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= least * 0.999);
}
