// The map: land or a grid, messages as they arrive, their density, subscriptions, and the subscription being edited.

import * as maplibre from "./vendor/maplibre-gl.mjs";
import { Animations } from "./animations.js";
import { GROUPS, layersOf, styleOf } from "./layers.js";
import { centreOf, extentOf, isRegion } from "./regions.js";
import { colour } from "./theme.js";
import { formatShort } from "./wording.js";

const MAX_MESSAGES = 3000;     // on the map
const FADE_MS = 90_000;
const REFRESH_MS = 1000;
export const MAX_DETAILED = 20;   // more subscriptions are drawn thinner, and without circles
const FULL_DENSITY = 100;      // messages in one place that give the strongest glow
const MAX_ZOOM_STEP = 4;       // into a cluster, whose subscriptions may all be in one place
const CLICK_PAUSE_MS = 500;    // after drawing, in which a click selects nothing and a double click does not zoom

export class LiveMap {
  constructor(container, { projection, kinds, onSelect }) {
    Object.assign(this, { projection, kinds, onSelect });
    this.messages = new Map();   // id -> message, oldest first
    this.hidden = new Set(["shards"]);
    this.features = {};
    this.clusterMarkers = [];
    this.map = new maplibre.Map({
      container,
      style: styleOf(colour, { field: collectionOf(this.fieldFeatures()), isEarth: projection.isEarth, hidden: this.hidden }),
      renderWorldCopies: projection.isEarth,
      attributionControl: false,
      dragRotate: false,
      pitchWithRotate: false,
    });
    this.map.touchZoomRotate.disableRotation();
    this.map.addControl(new maplibre.NavigationControl({ showCompass: false }), "top-right");
    if (projection.isEarth) {
      this.map.addControl(new maplibre.ScaleControl(), "bottom-right");
      this.map.addControl(new maplibre.AttributionControl({ compact: false, customAttribution: "land: Natural Earth" }), "bottom-right");
    }
    this.addGridLabels();
    this.popup = new maplibre.Popup({ closeButton: false, closeOnClick: false, maxWidth: "20rem", focusAfterOpen: false });
    this.animations = new Animations(this.map, projection);
    this.map.on("click", (event) => this.handleClick(event));
    this.map.on("dblclick", (event) => { if (this.isForDrawing) event.preventDefault(); });   // no zoom
    this.map.on("mousemove", (event) => this.handleHover(event));
    this.showAll(0);
    addEventListener("resize", () => this.updatePadding());
    this.ready = new Promise((resolve) => this.map.once("style.load", resolve));
    setInterval(() => this.refreshMessages(), REFRESH_MS);
    this.map.getContainer().liveMap = this;   // for the console and for tests
  }

  // The bounds and the grid lines.
  fieldFeatures() {
    const { projection } = this, [xmin, ymin, xmax, ymax] = projection.bounds;
    const line = ([axis, at]) => axis === 0 ? projection.line([at, ymin], [at, ymax]) : projection.line([xmin, at], [xmax, at]);
    return [projection.box(projection.bounds), ...projection.gridLines().map(line)];
  }

  addGridLabels() {
    const [xmin, ymin] = this.projection.bounds;
    for (const [axis, at] of this.projection.gridLines()) {
      const options = axis === 0 ? { anchor: "top", offset: [0, 3] } : { anchor: "right", offset: [-5, 0] };
      this.addLabel(this.projection.formatCoordinate(at, axis), axis === 0 ? [at, ymin] : [xmin, at], { className: "tick", ...options });
    }
  }

  // Write a text on the map, hidden from screen readers; return its marker.
  addLabel(text, location, { className, ...options }) {
    const element = Object.assign(document.createElement("span"), { className, textContent: text });
    const marker = new maplibre.Marker({ element, ...options }).setLngLat(this.projection.toMap(location)).addTo(this.map);
    element.removeAttribute("aria-label");
    element.ariaHidden = "true";
    return marker;
  }

  // Leave room for the cards that lie over the map.
  updatePadding() {
    const area = this.map.getContainer().getBoundingClientRect(), isSmall = area.width < 600;
    const padding = isSmall ? { top: 14, bottom: 34, left: 14, right: 46 } : { top: 30, bottom: 58, left: 62, right: 24 };
    for (const [side, card] of [["left", "#subscriptions"], ["right", ".side"]]) {
      const { left, right, top } = document.querySelector(card).getBoundingClientRect();
      if (top < area.bottom) padding[side] += side === "left" ? right - area.left : area.right - left;
    }
    this.map.setPadding(padding);
  }

  // Fit the bounds into the view.
  showAll(duration = 600) {
    const [xmin, ymin, xmax, ymax] = this.projection.bounds;
    this.updatePadding();
    this.map.fitBounds([this.projection.toMap([xmin, ymin]), this.projection.toMap([xmax, ymax])], { duration });
  }

  // Replace the features of a source.
  show(source, features) {
    this.features[source] = features;
    this.map.getSource(source)?.setData(collectionOf(features));
  }

  toggle(group, isShown) {
    this.hidden[isShown ? "delete" : "add"](group);
    for (const layer of GROUPS[group]) this.map.setLayoutProperty(layer, "visibility", isShown ? "visible" : "none");
    if (group === "points") this.animations.isShown = isShown;
    if (group === "subscriptions") this.map.getContainer().classList.toggle("without-clusters", !isShown);
  }

  recolour() {
    for (const { id, paint } of layersOf(colour, this.projection.isEarth)) {
      for (const [name, value] of Object.entries(paint)) this.map.setPaintProperty(id, name, value);
    }
  }

  addMessages(messages) {
    const now = performance.now();
    for (const message of messages) {
      this.messages.delete(message.id);
      this.messages.set(message.id, { ...message, arrivedAt: now });
      this.animations.addRing(message.location);
    }
    for (const id of this.messages.keys()) {
      if (this.messages.size <= MAX_MESSAGES) break;
      this.messages.delete(id);
    }
  }

  refreshMessages() {
    if (!this.messages.size || document.hidden) return;
    const now = performance.now();
    this.show("messages", [...this.messages.values()].map(({ location, id, arrivedAt }) =>
      this.projection.point(location, { id, freshness: Math.max(0, 1 - (now - arrivedAt) / FADE_MS) })));
    this.map.setPaintProperty("density", "heatmap-intensity", Math.min(1, FULL_DENSITY / (this.messages.size + 1)));
  }

  // Draw subscriptions as regions, circles and pins, and the regions that filter them: thinner if there are many, and faint while one of them is open.
  showSubscriptions(all, reaches, isOneOpen) {
    const { projection } = this, isMany = all.length > MAX_DETAILED;
    const boldness = Math.min(1, Math.sqrt(MAX_DETAILED / all.length)) * (isOneOpen ? 0.35 : 1);
    this.show("subscriptions", all.flatMap((subscription) => {
      const { id } = subscription, place = this.kinds.placeOf(subscription);
      if (!place) return [];
      if (isRegion(place)) return projection.region(place, { id, boldness, is: "region" });
      const filters = isMany ? [] : this.kinds.filterRegionsOf(subscription).flatMap((region) => projection.region(region, { id, boldness, is: "filter" }));
      const reach = isMany ? null : reaches.get(subscription) ?? null;
      const circle = reach === null ? null : projection.circle(place, reach, { id, boldness, is: "circle" });
      return [circle, ...filters, projection.point(place, { id, boldness, isMany })].filter(Boolean);
    }));
  }

  // Draw clusters as circles with their counts, larger for more subscriptions. A click zooms in.
  showClusters(clusters, isOneOpen) {
    for (const marker of this.clusterMarkers) marker.remove();
    this.clusterMarkers = clusters.map(({ location, count, box }) => {
      const size = 20 + 7 * Math.log10(count), opacity = isOneOpen ? "0.35" : "1";
      const marker = this.addLabel(formatShort(count), this.inView(location, size / 2), { className: "cluster", opacity });
      const element = marker.getElement();
      element.style.setProperty("--size", `${size}px`);
      element.addEventListener("click", (event) => { event.stopPropagation(); this.zoomTo(box); });
      return marker;
    });
  }

  // The nearest location at which a mark of a radius, in pixels, lies within the map.
  inView(location, radius) {
    const { x, y } = this.map.project(this.projection.toMap(location)), { clientWidth, clientHeight } = this.map.getContainer();
    const clamp = (value, end) => Math.min(Math.max(value, radius), end - radius);
    const { lng, lat } = this.map.unproject([clamp(x, clientWidth), clamp(y, clientHeight)]);
    return this.projection.fromMap([lng, lat]);
  }

  zoomTo([xmin, ymin, xmax, ymax]) {
    const corners = [this.projection.toMap([xmin, ymin]), this.projection.toMap([xmax, ymax])];
    this.map.fitBounds(corners, { maxZoom: this.map.getZoom() + MAX_ZOOM_STEP });
  }

  // The part of the bounds that the map shows. Across the date line that is the whole width.
  get view() {
    const bounds = this.map.getBounds(), [west, south, east, north] = bounds.toArray().flat();
    const [xmin, ymin] = this.projection.fromMap([west, south]), [xmax, ymax] = this.projection.fromMap([east, north]);
    const isAcross = this.projection.isEarth && (west < -180 || east > 180);
    return isAcross ? [this.projection.bounds[0], ymin, this.projection.bounds[2], ymax] : [xmin, ymin, xmax, ymax];
  }

  // The feature at a point of the screen: a pin, else a message, else the smallest region.
  featureAt(point) {
    const nearby = [[point.x - 4, point.y - 4], [point.x + 4, point.y + 4]];
    const [top] = ["pins", "points"].flatMap((layer) => this.map.queryRenderedFeatures(nearby, { layers: [layer] }));
    if (top) return top;
    const regions = this.map.queryRenderedFeatures(point, { layers: ["areas"] }).filter(({ properties }) => properties.is === "region");
    return regions.sort((a, b) => areaOf(a) - areaOf(b))[0];
  }

  // Whether a click belongs to a drawing, which it may have ended.
  get isForDrawing() { return this.isDrawing || performance.now() < this.drawnAt + CLICK_PAUSE_MS; }

  handleClick(event) {
    if (this.isForDrawing) return;
    const feature = this.featureAt(event.point);
    this.closePopup();
    if (feature?.layer.id === "points") this.pinPopup(feature.properties.id);
    else if (feature) this.onSelect(feature.properties.id);
  }

  handleHover(event) {
    if (this.isDrawing || this.pinnedMessage) return;
    const feature = this.featureAt(event.point);
    this.map.getCanvas().style.cursor = feature ? "pointer" : "";
    if (feature?.layer.id === "points") this.showPopup(feature.properties.id);
    else this.popup.remove();
  }

  // Show the text of a message at its location.
  showPopup(id) {
    const message = this.messages.get(id);
    if (message) this.popup.setLngLat(this.projection.toMap(message.location)).setText(textOf(message)).addTo(this.map);
  }

  // Show the text of a message until the next click, with its explanation for the open subscription.
  async pinPopup(id) {
    const message = this.messages.get(id);
    if (!message) return;
    this.showPopup(id);
    this.pinnedMessage = id;
    const explanation = await this.explain?.(message);
    if (!explanation || this.pinnedMessage !== id) return;
    const content = document.createElement("div");
    content.append(...explanation);
    this.popup.setDOMContent(content);
  }

  closePopup() {
    this.pinnedMessage = null;
    this.popup.remove();
  }

  get centre() {
    const { lng, lat } = this.map.getCenter();
    return this.projection.fromMap([lng, lat]);
  }

  // Move the map to a place, unless it is in view.
  goTo(place) {
    const at = this.projection.toMap(centreOf(place));
    if (!this.isInView(at)) this.map.easeTo({ center: at });
  }

  isInView(at) {
    const { x, y } = this.map.project(at), { top, bottom, left, right } = this.map.getPadding();
    const { clientWidth, clientHeight } = this.map.getContainer();
    return x > left && y > top && x < clientWidth - right && y < clientHeight - bottom;
  }
}

// The area of the box around a feature; one that tiles cut consists of several polygons.
function areaOf({ geometry: { type, coordinates } }) {
  const [xmin, ymin, xmax, ymax] = extentOf(type === "Polygon" ? coordinates.flat() : coordinates.flat(2));
  return (xmax - xmin) * (ymax - ymin);
}

const collectionOf = (features) => ({ type: "FeatureCollection", features });

export const textOf = ({ text, message, id }) => Array.isArray(text) ? text.join(" ") : text ?? message ?? id;
