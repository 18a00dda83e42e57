// What does the map show? Land or a grid, messages as they come, where they crowd, subscriptions, and a draft.

import * as maplibre from "./vendor/maplibre-gl.mjs";
import { reachOf } from "./kinds.js";
import { GROUPS, layersOf, styleOf } from "./layers.js";
import { Motion } from "./motion.js";
import { colour } from "./theme.js";

const KEPT = 3000;      // messages on the map
const FADES_MS = 90_000;
const SHOWN_EVERY_MS = 1000;
const FEW = 20;         // subscriptions; more are drawn thinner, and without circles
const CROWD = 100;      // messages that make the glow as strong as it gets, were they in one place
const LANDING_MS = 500; // after something was drawn, in which its last click picks nothing

export class WorldMap {
  constructor(place, frame, picked) {
    this.frame = frame;
    this.picked = picked;
    this.messages = new Map();   // id -> message, oldest first
    this.hidden = new Set(["shards"]);
    this.features = {};
    this.map = new maplibre.Map({
      container: place,
      style: styleOf(colour, { field: collected(this.field()), isEarth: frame.isEarth, hidden: this.hidden }),
      renderWorldCopies: frame.isEarth,
      attributionControl: false,
      dragRotate: false,
      pitchWithRotate: false,
    });
    this.map.touchZoomRotate.disableRotation();
    this.map.addControl(new maplibre.NavigationControl({ showCompass: false }), "top-right");
    if (frame.isEarth) {
      this.map.addControl(new maplibre.ScaleControl(), "bottom-right");
      this.map.addControl(new maplibre.AttributionControl({ compact: false, customAttribution: "land: Natural Earth" }), "bottom-right");
    }
    this.label();
    this.popup = new maplibre.Popup({ closeButton: false, closeOnClick: false, maxWidth: "20rem", focusAfterOpen: false });
    this.motion = new Motion(this.map, frame);
    this.map.on("click", (event) => this.clicked(event));
    this.map.on("mousemove", (event) => this.pointed(event));
    this.home(0);
    addEventListener("resize", () => this.pad());
    this.ready = new Promise((done) => this.map.once("style.load", done));
    setInterval(() => this.refresh(), SHOWN_EVERY_MS);
    this.map.getContainer().world = this;   // for who looks from outside: the console, and tests
  }

  // The bounds and round lines across them.
  field() {
    const [xmin, ymin, xmax, ymax] = this.frame.bounds;
    const line = ([axis, at]) => axis === 0 ? this.frame.line([at, ymin], [at, ymax]) : this.frame.line([xmin, at], [xmax, at]);
    return [this.frame.box(this.frame.bounds), ...this.frame.gridLines().map(line)];
  }

  label() {
    const [xmin, ymin] = this.frame.bounds;
    for (const [axis, at] of this.frame.gridLines()) {
      const where = axis === 0 ? { anchor: "top", offset: [0, 3] } : { anchor: "right", offset: [-5, 0] };
      this.note(this.frame.saidAt(at, axis), axis === 0 ? [at, ymin] : [xmin, at], { className: "tick", ...where });
    }
  }

  // Write something on the map, for the eye alone; return what can be removed.
  note(text, at, { className, ...how }) {
    const element = Object.assign(document.createElement("span"), { className, textContent: text });
    const marker = new maplibre.Marker({ element, ...how }).setLngLat(this.frame.toMap(at)).addTo(this.map);
    element.removeAttribute("aria-label");
    element.ariaHidden = "true";
    return marker;
  }

  // Leave room for what lies over the map.
  pad() {
    const stage = this.map.getContainer().getBoundingClientRect(), isSmall = stage.width < 600;
    const room = isSmall ? { top: 14, bottom: 34, left: 14, right: 46 } : { top: 30, bottom: 58, left: 62, right: 24 };
    for (const [side, card] of [["left", "#subscriptions"], ["right", ".side"]]) {
      const { left, right, top } = document.querySelector(card).getBoundingClientRect();
      if (top < stage.bottom) room[side] += side === "left" ? right - stage.left : stage.right - left;
    }
    this.map.setPadding(room);
  }

  // Show everything.
  home(duration = 600) {
    const [xmin, ymin, xmax, ymax] = this.frame.bounds;
    this.pad();
    this.map.fitBounds([this.frame.toMap([xmin, ymin]), this.frame.toMap([xmax, ymax])], { duration });
  }

  show(source, features) {
    this.features[source] = features;
    this.map.getSource(source)?.setData(collected(features));
  }

  toggle(name, isShown) {
    this.hidden[isShown ? "delete" : "add"](name);
    for (const layer of GROUPS[name]) this.map.setLayoutProperty(layer, "visibility", isShown ? "visible" : "none");
    if (name === "points") this.motion.isShown = isShown;
  }

  recolour() {
    for (const { id, paint } of layersOf(colour, this.frame.isEarth)) {
      for (const [name, value] of Object.entries(paint)) this.map.setPaintProperty(id, name, value);
    }
  }

  take(messages) {
    const now = performance.now();
    for (const message of messages) {
      this.messages.delete(message.id);
      this.messages.set(message.id, { ...message, came: now });
      this.motion.pulse(message.location);
    }
    for (const id of this.messages.keys()) {
      if (this.messages.size <= KEPT) break;
      this.messages.delete(id);
    }
  }

  refresh() {
    if (!this.messages.size || document.hidden) return;
    const now = performance.now();
    this.show("messages", [...this.messages.values()].map(({ location, id, came }) =>
      this.frame.point(location, { id, fresh: Math.max(0, 1 - (now - came) / FADES_MS) })));
    this.map.setPaintProperty("density", "heatmap-intensity", Math.min(1, CROWD / (this.messages.size + 1)));
  }

  // Boxes, circles and pins; thinner where there are many, and faint while one of them is looked at.
  subscriptions(all, isOneOpen) {
    const many = all.length > FEW, bold = Math.min(1, Math.sqrt(FEW / all.length)) * (isOneOpen ? 0.35 : 1);
    const drawn = all.flatMap(({ id, region, location, ...rest }) => {
      if (region) return [this.frame.box(region, { id, bold, is: "box" })];
      const reach = reachOf(rest, this.frame.reach), pin = this.frame.point(location, { id, bold, many });
      return reach === null || many ? [pin] : [this.frame.circle(location, reach, { id, bold, is: "circle" }), pin];
    });
    this.show("subscriptions", drawn.filter(Boolean));
  }

  // A pin, then a message, then the smallest area.
  found(point) {
    const near = [[point.x - 4, point.y - 4], [point.x + 4, point.y + 4]];
    const [top] = ["pins", "points"].flatMap((layer) => this.map.queryRenderedFeatures(near, { layers: [layer] }));
    const span = ({ geometry: { coordinates: [ring] } }) => Math.abs((ring[2][0] - ring[0][0]) * (ring[2][1] - ring[0][1]));
    if (top) return top;
    const boxes = this.map.queryRenderedFeatures(point, { layers: ["areas"] }).filter(({ properties }) => properties.is === "box");
    return boxes.sort((a, b) => span(a) - span(b))[0];
  }

  clicked(event) {
    if (this.isDrawing || performance.now() < this.landed + LANDING_MS) return;
    const found = this.found(event.point);
    this.unpin();
    if (found?.layer.id === "points") this.pin(found.properties.id);
    else if (found) this.picked(found.properties.id);
  }

  pointed(event) {
    if (this.isDrawing || this.pinned) return;
    const found = this.found(event.point);
    this.map.getCanvas().style.cursor = found ? "pointer" : "";
    if (found?.layer.id === "points") this.tell(found.properties.id);
    else this.popup.remove();
  }

  // Show what a message says, where it was said.
  tell(id) {
    const message = this.messages.get(id);
    if (message) this.popup.setLngLat(this.frame.toMap(message.location)).setText(textOf(message)).addTo(this.map);
  }

  // The same until the next click, with what there is to explain about it.
  async pin(id) {
    const message = this.messages.get(id);
    if (!message) return;
    this.tell(id);
    this.pinned = id;
    const why = await this.explains?.(message);
    if (!why || this.pinned !== id) return;
    const said = document.createElement("div");
    said.append(textOf(message), why);
    this.popup.setDOMContent(said);
  }

  unpin() {
    this.pinned = null;
    this.popup.remove();
  }

  get middle() {
    const { lng, lat } = this.map.getCenter();
    return this.frame.toWorld([lng, lat]);
  }

  goTo(place) {
    const [x, y] = place.length === 4 ? [(place[0] + place[2]) / 2, (place[1] + place[3]) / 2] : place;
    const at = this.frame.toMap([x, y]);
    if (!this.isInView(at)) this.map.easeTo({ center: at });
  }

  isInView(at) {
    const { x, y } = this.map.project(at), { top, bottom, left, right } = this.map.getPadding();
    const { clientWidth, clientHeight } = this.map.getContainer();
    return x > left && y > top && x < clientWidth - right && y < clientHeight - bottom;
  }
}

const collected = (features) => ({ type: "FeatureCollection", features });

export const textOf = ({ text, message, id }) => Array.isArray(text) ? text.join(" ") : text ?? message ?? id;
