// The layers of the map, from the bottom up, in the colours of the theme.

const EMPTY = { type: "FeatureCollection", features: [] };
const SOURCES = ["shards", "messages", "subscriptions", "draft"];

export const GROUPS = {
  points: ["points"],
  density: ["density"],
  subscriptions: ["areas", "area-edges", "pins"],
  shards: ["shards", "shard-edges"],
};

const get = (name) => ["get", name];
const is = (...names) => ["in", get("is"), ["literal", names]];
const shape = (type) => ["==", ["geometry-type"], type];
const between = (value, low, high) => ["interpolate", ["linear"], value, 0, low, 1, high];

function layer(type, id, source, filter, properties) {
  const paint = Object.fromEntries(Object.entries(properties).map(([name, value]) => [`${type}-${name}`, value]));
  return { id, type, source, filter, paint };
}

export function layersOf(colour, isEarth) {
  const heat = ["none", "low", "mid", "high"].flatMap((name, i) => [[0, 0.2, 0.6, 1][i], colour(`heat-${name}`)]);
  return [
    { id: "background", type: "background", paint: { "background-color": colour(isEarth ? "sea" : "land") } },
    layer("fill", "land", "land", is("land"), { color: colour("land") }),
    layer("line", "coast", "land", is("land"), { color: colour("coast"), width: 1 }),
    layer("line", "borders", "land", is("border"), { color: colour("coast"), width: 0.8, dasharray: [4, 3] }),
    layer("fill", "field", "field", shape("Polygon"), { color: colour("field"), opacity: isEarth ? 0.4 : 1 }),
    layer("line", "grid", "field", shape("LineString"), { color: colour("grid"), width: 1 }),
    layer("line", "bounds", "field", shape("Polygon"), { color: colour("bounds"), width: 1 }),

    layer("fill", "shards", "shards", true, { color: get("colour"), opacity: get("opacity") }),
    layer("line", "shard-edges", "shards", true, { color: get("colour"), width: 1.5 }),

    layer("heatmap", "density", "messages", true, {
      radius: 38, opacity: 0.6, weight: get("freshness"), color: ["interpolate", ["linear"], ["heatmap-density"], ...heat],
    }),
    layer("fill", "areas", "subscriptions", shape("Polygon"), {
      color: colour("subscription"), opacity: ["case", is("region"), ["*", 0.05, ["^", get("boldness"), 2]], 0],
    }),
    layer("line", "area-edges", "subscriptions", shape("Polygon"), {
      color: colour("subscription"), width: 1, opacity: ["*", get("boldness"), ["case", is("region"), 0.7, 0.35]],
    }),
    layer("circle", "points", "messages", true, {
      color: colour("message"), radius: between(get("freshness"), 2.2, 3.8), opacity: between(get("freshness"), 0.3, 0.95),
    }),
    layer("circle", "pins", "subscriptions", shape("Point"), {
      radius: ["case", get("isMany"), 3.5, 5], color: colour("land"), opacity: ["sqrt", get("boldness")],
      "stroke-color": colour("subscription"), "stroke-width": ["case", get("isMany"), 1.5, 2.2], "stroke-opacity": ["sqrt", get("boldness")],
    }),

    layer("fill", "draft-area", "draft", ["all", shape("Polygon"), is("area", "circle")], {
      color: colour("selected"), opacity: ["case", is("area"), 0.12, 0.05],
    }),
    layer("line", "draft-edge", "draft", is("area"), { color: colour("selected"), width: 2 }),
    layer("line", "draft-circle", "draft", is("circle", "filter"), { color: colour("selected"), width: 1.5, dasharray: [3, 2] }),
    layer("line", "threads", "draft", is("thread"), { color: colour("selected"), width: 1.2, opacity: 0.45 }),
    layer("circle", "draft-points", "draft", is("pin", "corner", "result", "highlighted"), {
      radius: ["match", get("is"), "pin", 7.5, "highlighted", 8, "corner", 4, 5], color: ["case", is("pin", "corner"), colour("selected"), colour("message")],
      "stroke-color": ["case", is("pin"), colour("land"), colour("selected")], "stroke-width": 2.2,
    }),
  ];
}

export function styleOf(colour, { field, isEarth, hidden }) {
  const hiddenLayers = new Set([...hidden].flatMap((name) => GROUPS[name]));
  const land = isEarth ? new URL("land.json", import.meta.url).href : EMPTY;
  const data = { land, field, ...Object.fromEntries(SOURCES.map((name) => [name, EMPTY])) };
  return {
    version: 8,
    transition: { duration: 0 },
    sources: Object.fromEntries(Object.entries(data).map(([name, content]) => [name, { type: "geojson", data: content }])),
    layers: layersOf(colour, isEarth).map(({ id, ...rest }) => ({
      id, ...rest, layout: { visibility: hiddenLayers.has(id) ? "none" : "visible" },
    })),
  };
}
