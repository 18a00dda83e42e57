// What does the map show? Land, messages as they come, where they crowd, subscriptions, and who does which part.

import * as maplibre from "./vendor/maplibre-gl.mjs";

const KEPT = 3000;      // messages on the map
const FADES_MS = 60_000;
const EMPTY = { type: "FeatureCollection", features: [] };
const LAYERS = {
  points: ["points"],
  density: ["density"],
  subscriptions: ["areas", "area-edges", "pins"],
  shards: ["shards", "shard-edges"],
};
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export class WorldMap {
  constructor(place, world, picked) {
    const [xmin, ymin, xmax, ymax] = world.bounds;
    this.world = world;
    this.messages = [];
    this.hidden = new Set(["shards"]);
    this.map = new maplibre.Map({
      container: place,
      style: this.style(),
      bounds: [[xmin, ymin], [xmax, ymax]],
      fitBoundsOptions: { padding: 40 },
      attributionControl: { compact: true, customAttribution: "land: Natural Earth" },
    });
    this.map.addControl(new maplibre.NavigationControl({ showCompass: false }), "bottom-right");
    this.map.addControl(new maplibre.ScaleControl(), "bottom-right");
    for (const layer of ["areas", "pins"]) this.map.on("click", layer, (event) => this.drawing || picked(event.features[0].properties.id));
    this.ready = new Promise((done) => this.map.once("load", done));
    setInterval(() => this.refresh(), 500);
  }

  style() {
    const source = (data) => ({ type: "geojson", data });
    const shown = (layer) => ({ visibility: Object.entries(LAYERS).some(([name, own]) => own.includes(layer) && this.hidden.has(name)) ? "none" : "visible" });
    const layers = [
      { id: "sea", type: "background", paint: { "background-color": colour("sea") } },
      { id: "land", type: "fill", source: "land", filter: ["==", "is", "land"], paint: { "fill-color": colour("land") } },
      { id: "borders", type: "line", source: "land", filter: ["==", "is", "border"], paint: { "line-color": colour("border"), "line-width": 0.7 } },
      { id: "bounds", type: "line", source: "bounds", paint: { "line-color": colour("border"), "line-dasharray": [2, 2] } },
      { id: "shards", type: "fill", source: "shards", paint: { "fill-color": ["get", "colour"], "fill-opacity": ["get", "depth"] } },
      { id: "shard-edges", type: "line", source: "shards", paint: { "line-color": ["get", "colour"], "line-width": 1 } },
      { id: "density", type: "heatmap", source: "messages", paint: {
        "heatmap-radius": 24, "heatmap-opacity": 0.45, "heatmap-intensity": 0.6, "heatmap-weight": ["get", "fresh"],
        "heatmap-color": ["interpolate", ["linear"], ["heatmap-density"], 0, "rgba(0,0,0,0)", 1, colour("heat")],
      } },
      { id: "points", type: "circle", source: "messages", paint: {
        "circle-radius": ["interpolate", ["linear"], ["get", "fresh"], 0, 2, 1, 4.5],
        "circle-color": colour("message"), "circle-opacity": ["get", "fresh"],
      } },
      { id: "areas", type: "fill", source: "subscriptions", filter: ["==", "$type", "Polygon"], paint: { "fill-color": colour("own"), "fill-opacity": 0.12 } },
      { id: "area-edges", type: "line", source: "subscriptions", filter: ["==", "$type", "Polygon"], paint: { "line-color": colour("own"), "line-width": 1.5 } },
      { id: "pins", type: "circle", source: "subscriptions", filter: ["==", "$type", "Point"], paint: {
        "circle-radius": 6, "circle-color": colour("own"), "circle-stroke-color": colour("land"), "circle-stroke-width": 2,
      } },
      { id: "threads", type: "line", source: "draft", filter: ["==", "is", "thread"], paint: { "line-color": colour("picked"), "line-opacity": 0.6, "line-width": 1.5 } },
      { id: "draft-area", type: "fill", source: "draft", filter: ["==", "is", "area"], paint: { "fill-color": colour("picked"), "fill-opacity": 0.15 } },
      { id: "draft-edge", type: "line", source: "draft", filter: ["==", "is", "area"], paint: { "line-color": colour("picked"), "line-width": 2 } },
      { id: "draft-points", type: "circle", source: "draft", filter: ["in", "is", "pin", "result"], paint: {
        "circle-radius": ["match", ["get", "is"], "pin", 7, 5], "circle-color": colour("picked"),
        "circle-stroke-color": colour("land"), "circle-stroke-width": 2,
      } },
    ].map((layer) => ({ ...layer, layout: shown(layer.id) }));
    const sources = {
      land: source(new URL("land.json", import.meta.url).href), bounds: source(box(this.world.bounds)),
      shards: source(this.of?.shards ?? EMPTY), messages: source(EMPTY),
      subscriptions: source(this.of?.subscriptions ?? EMPTY), draft: source(this.of?.draft ?? EMPTY),
    };
    return { version: 8, sources, layers };
  }

  show(source, features) {
    this.of = { ...this.of, [source]: { type: "FeatureCollection", features } };
    this.map.getSource(source)?.setData(this.of[source]);
  }

  toggle(name, isShown) {
    this.hidden[isShown ? "delete" : "add"](name);
    for (const layer of LAYERS[name]) this.map.setLayoutProperty(layer, "visibility", isShown ? "visible" : "none");
  }

  recolour() {
    this.map.setStyle(this.style());
  }

  take(messages) {
    const now = performance.now();
    this.messages = [...this.messages, ...messages.map((message) => ({ ...message, came: now }))].slice(-KEPT);
  }

  refresh() {
    const now = performance.now();
    this.show("messages", this.messages.map(({ location, id, came }) => ({
      type: "Feature", properties: { id, fresh: Math.max(0.15, 1 - (now - came) / FADES_MS) },
      geometry: { type: "Point", coordinates: location },
    })));
  }

  shards(regions, loads) {
    const most = Math.max(...loads, 1e-9);
    this.show("shards", regions.map(({ box: bounds, shards }) => {
      const shard = shards[0] ?? 0;
      return { ...box(bounds), properties: { colour: `hsl(${(137.5 * shard) % 360} 60% 50%)`, depth: 0.05 + 0.2 * loads[shard] / most } };
    }));
  }

  // Let the user draw: two corners for a box, one point for a pin. Escape gives up.
  draw(shape, done) {
    this.stop?.();
    this.drawing = true;
    const canvas = this.map.getCanvas();
    canvas.style.cursor = "crosshair";
    let first = null;
    const at = ({ lngLat }) => [clamp(lngLat.lng, this.world.bounds, 0), clamp(lngLat.lat, this.world.bounds, 1)];
    const between = ([ax, ay], [bx, by]) => [Math.min(ax, bx), Math.min(ay, by), Math.max(ax, bx), Math.max(ay, by)];
    const click = (event) => {
      event.preventDefault();
      if (shape === "pin") { this.stop(); done(at(event)); }
      else if (!first) first = at(event);
      else { const corners = between(first, at(event)); this.stop(); done(corners); }
    };
    const move = (event) => { if (first) this.show("draft", [{ ...box(between(first, at(event))), properties: { is: "area" } }]); };
    const key = (event) => { if (event.key === "Escape") this.stop(); };
    this.map.on("click", click);
    this.map.on("mousemove", move);
    addEventListener("keydown", key);
    this.stop = () => {
      this.map.off("click", click);
      this.map.off("mousemove", move);
      removeEventListener("keydown", key);
      canvas.style.cursor = "";
      this.drawing = false;
      this.stop = null;
    };
  }

  middle() {
    const { lng, lat } = this.map.getCenter();
    return [clamp(lng, this.world.bounds, 0), clamp(lat, this.world.bounds, 1)];
  }

  goTo(place) {
    const [x, y] = place.length === 4 ? [(place[0] + place[2]) / 2, (place[1] + place[3]) / 2] : place;
    this.map.easeTo({ center: [x, y] });
  }
}

const clamp = (value, bounds, axis) => Math.min(Math.max(value, bounds[axis]), bounds[axis + 2]);

export function box([xmin, ymin, xmax, ymax]) {
  const ring = [[xmin, ymin], [xmax, ymin], [xmax, ymax], [xmin, ymax], [xmin, ymin]];
  return { type: "Feature", properties: {}, geometry: { type: "Polygon", coordinates: [ring] } };
}
