// What does the map look like? Its layers from the bottom up, in the colours of the theme.

const EMPTY = { type: "FeatureCollection", features: [] };

export const GROUPS = {
  points: ["points"],
  density: ["density"],
  subscriptions: ["areas", "area-edges", "pins"],
  shards: ["shards", "shard-edges"],
};

const is = (...names) => ["in", ["get", "is"], ["literal", names]];
const shape = (type) => ["==", ["geometry-type"], type];

export function layersOf(colour) {
  const line = (id, source, width, hue, more = {}) =>
    ({ id, type: "line", source, filter: more.filter ?? true, paint: { "line-color": hue, "line-width": width, ...more.paint } });
  return [
    { id: "sea", type: "background", paint: { "background-color": colour("sea") } },
    { id: "land", type: "fill", source: "land", filter: ["==", ["get", "is"], "land"], paint: { "fill-color": colour("land") } },
    line("coast", "land", 1, colour("coast"), { filter: ["==", ["get", "is"], "land"] }),
    line("borders", "land", 0.8, colour("coast"), { filter: ["==", ["get", "is"], "border"], paint: { "line-dasharray": [4, 3] } }),
    { id: "field", type: "fill", source: "field", filter: shape("Polygon"), paint: { "fill-color": colour("field") } },
    line("grid", "field", 1, colour("grid"), { filter: shape("LineString") }),
    line("rim", "field", 1, colour("rim"), { filter: shape("Polygon") }),
    { id: "shards", type: "fill", source: "shards", paint: { "fill-color": ["get", "colour"], "fill-opacity": ["get", "depth"] } },
    line("shard-edges", "shards", 1.5, ["get", "colour"]),
    { id: "density", type: "heatmap", source: "messages", paint: {
      "heatmap-radius": 38, "heatmap-opacity": 0.6, "heatmap-weight": ["get", "fresh"],
      "heatmap-color": ["interpolate", ["linear"], ["heatmap-density"], 0, colour("heat-none"), 0.2, colour("heat-low"), 0.6, colour("heat-mid"), 1, colour("heat-high")],
    } },
    { id: "areas", type: "fill", source: "subscriptions", filter: shape("Polygon"), paint: { "fill-color": colour("own"), "fill-opacity": ["*", 0.05, ["get", "bold"], ["case", ["==", ["get", "is"], "box"], 1, 0]] } },
    line("area-edges", "subscriptions", 1, colour("own"), { filter: shape("Polygon"), paint: { "line-opacity": ["*", ["get", "bold"], ["case", ["==", ["get", "is"], "box"], 0.7, 0.35]] } }),
    { id: "points", type: "circle", source: "messages", paint: {
      "circle-radius": ["interpolate", ["linear"], ["get", "fresh"], 0, 2.2, 1, 3.8],
      "circle-color": colour("message"), "circle-opacity": ["interpolate", ["linear"], ["get", "fresh"], 0, 0.3, 1, 0.95],
    } },
    { id: "pins", type: "circle", source: "subscriptions", filter: shape("Point"), paint: {
      "circle-radius": ["case", ["get", "many"], 3.5, 5], "circle-color": colour("land"), "circle-stroke-color": colour("own"),
      "circle-stroke-width": ["case", ["get", "many"], 1.5, 2.2], "circle-opacity": ["sqrt", ["get", "bold"]], "circle-stroke-opacity": ["sqrt", ["get", "bold"]],
    } },
    { id: "draft-area", type: "fill", source: "draft", filter: is("area", "circle"), paint: { "fill-color": colour("picked"), "fill-opacity": ["match", ["get", "is"], "area", 0.12, 0.05] } },
    line("draft-edge", "draft", 2, colour("picked"), { filter: is("area") }),
    line("draft-circle", "draft", 1.5, colour("picked"), { filter: is("circle"), paint: { "line-dasharray": [3, 2] } }),
    line("threads", "draft", 1.2, colour("picked"), { filter: is("thread"), paint: { "line-opacity": 0.45 } }),
    { id: "draft-points", type: "circle", source: "draft", filter: is("pin", "result", "pointed"), paint: {
      "circle-radius": ["match", ["get", "is"], "pin", 7.5, "pointed", 8, 5], "circle-color": ["match", ["get", "is"], "pin", colour("picked"), colour("message")],
      "circle-stroke-color": ["match", ["get", "is"], "pin", colour("land"), colour("picked")], "circle-stroke-width": 2.2,
    } },
  ];
}

export function styleOf(colour, { field, isEarth, hidden }) {
  const source = (data) => ({ type: "geojson", data });
  const unseen = new Set([...hidden].flatMap((name) => GROUPS[name]));
  const land = isEarth ? new URL("land.json", import.meta.url).href : EMPTY;
  return {
    version: 8,
    transition: { duration: 0 },
    sources: {
      land: source(land), field: source(field), shards: source(EMPTY), messages: source(EMPTY), subscriptions: source(EMPTY), draft: source(EMPTY),
    },
    layers: layersOf(colour).map((layer) => ({ ...layer, layout: { visibility: unseen.has(layer.id) ? "none" : "visible" } })),
  };
}
