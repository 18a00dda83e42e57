// Animations over the map: rings at new messages, threads from messages to the subscriptions they match, and texts.
// Drawn on a canvas, frame by frame, only while there is something to show.

import { colour } from "./theme.js";

const DURATION_MS = { ring: 1600, thread: 2200, label: 4200 };
const MAX_SHOWN = { ring: 300, thread: 30, label: 4 };
const LABEL_INSET = 8;           // pixels between a label and its text
const LABEL_INTERVAL_MS = 600;   // between two new texts
const REDUCED_INTERVAL_MS = 300; // between two frames under reduced motion
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

export class Animations {
  constructor(map, projection) {
    this.map = map;
    this.projection = projection;
    this.active = [];
    this.isShown = true;
    this.lastLabelAt = 0;
    this.canvas = Object.assign(document.createElement("canvas"), { className: "animations", ariaHidden: "true" });
    map.getCanvasContainer().append(this.canvas);
    this.context = this.canvas.getContext("2d");
    this.recolour();
  }

  recolour() {
    this.colours = Object.fromEntries(["message", "subscription", "selected", "card", "text", "line"].map((name) => [name, colour(name)]));
  }

  addRing(location) { this.add({ type: "ring", at: this.projection.toMap(location) }); }

  addThread(from, to, isSelected) {
    this.add({ type: "thread", at: this.projection.toMap(from), to: this.projection.toMap(to), isSelected });
  }

  addLabel(location, text) {
    const now = performance.now();
    if (now - this.lastLabelAt < LABEL_INTERVAL_MS || this.active.some((one) => one.text === text)) return;
    this.lastLabelAt = now;
    this.add({ type: "label", at: this.projection.toMap(location), text });
  }

  add(animation) {
    if (document.hidden || this.active.filter(({ type }) => type === animation.type).length >= MAX_SHOWN[animation.type]) return;
    this.active.push({ ...animation, startedAt: performance.now() });
    this.scheduleFrame();
  }

  drawFrame() {
    const now = performance.now(), { context, canvas } = this, { clientWidth: width, clientHeight: height } = this.map.getCanvas();
    const density = Math.min(devicePixelRatio, 2);
    if (canvas.width !== width * density) canvas.width = width * density;
    if (canvas.height !== height * density) canvas.height = height * density;
    context.setTransform(density, 0, 0, density, 0, 0);
    context.clearRect(0, 0, width, height);
    this.active = this.active.filter(({ type, startedAt }) => now - startedAt < DURATION_MS[type]);
    this.labelBoxes = [];
    const drawers = { ring: "drawRing", thread: "drawThread", label: "drawLabel" };
    for (const animation of this.active) {
      const age = (now - animation.startedAt) / DURATION_MS[animation.type], { x, y } = this.map.project(animation.at);
      if (this.isShown || animation.type === "thread") this[drawers[animation.type]](animation, x, y, reducedMotion.matches ? 0.4 : age);
    }
    context.globalAlpha = 1;
    this.frame = undefined;
    if (this.active.length) this.scheduleFrame();
  }

  // Draw the next frame; under reduced motion only often enough to remove what is over.
  scheduleFrame() {
    const draw = () => this.drawFrame();
    this.frame ??= reducedMotion.matches ? setTimeout(draw, REDUCED_INTERVAL_MS) : requestAnimationFrame(draw);
  }

  drawRing(_, x, y, age) {
    const { context } = this;
    context.globalAlpha = (1 - age) * 0.8;
    context.strokeStyle = context.fillStyle = this.colours.message;
    context.lineWidth = 1.5;
    traceCircle(context, x, y, 3 + 15 * Math.sqrt(age));
    context.stroke();
    context.globalAlpha = 1 - age * 0.3;
    traceCircle(context, x, y, 3.8);
    context.fill();
  }

  drawThread({ to, isSelected }, x, y, age) {
    const { context } = this, end = this.map.project(to), progress = Math.min(1, age * 4);
    const lift = Math.hypot(end.x - x, end.y - y) * 0.18, control = { x: (x + end.x) / 2, y: (y + end.y) / 2 - lift };
    context.globalAlpha = (isSelected ? 0.95 : 0.55) * (1 - age);
    context.strokeStyle = context.fillStyle = isSelected ? this.colours.selected : this.colours.subscription;
    context.lineWidth = isSelected ? 2.4 : 1.3;
    context.beginPath();
    context.moveTo(x, y);
    for (let step = 1; step <= 20; step++) {
      const t = progress * step / 20, u = 1 - t;
      context.lineTo(u * u * x + 2 * u * t * control.x + t * t * end.x, u * u * y + 2 * u * t * control.y + t * t * end.y);
    }
    context.stroke();
    if (progress < 1) return;
    traceCircle(context, end.x, end.y, 5 + 8 * age);
    context.stroke();
  }

  drawLabel({ text }, x, y, age) {
    const { context } = this, box = this.labelBoxOf(text, x, y);
    const overlaps = (other) => box.x < other.x + other.width + 6 && other.x < box.x + box.width + 6 && Math.abs(other.y - box.y) < box.height + 4;
    if (!box || this.labelBoxes.some(overlaps)) return;
    this.labelBoxes.push(box);
    context.globalAlpha = Math.min(1, age * 12, (1 - age) * 5);
    context.fillStyle = this.colours.card;
    context.strokeStyle = this.colours.line;
    context.lineWidth = 1;
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, box.height, 12);
    context.fill();
    context.stroke();
    context.fillStyle = this.colours.text;
    context.fillText(box.text, box.x + LABEL_INSET, box.y + 16);
  }

  // Where the label of a point lies, and as much of its text as fits: above the point and between the cards; null if the
  // point is not in view.
  labelBoxOf(text, x, y) {
    const { context } = this, { clientWidth, clientHeight } = this.map.getCanvas(), { top, left, right } = this.map.getPadding();
    const start = Math.max(0, left - 30), end = clientWidth - Math.max(0, right - 10), height = 24;
    if (x < start || x > end || y < top || y > clientHeight) return null;
    context.font = "500 12px system-ui, sans-serif";
    const shortened = shorten(context, text, end - start - 2 * LABEL_INSET);
    const width = context.measureText(shortened).width + 2 * LABEL_INSET;
    return { text: shortened, x: Math.min(Math.max(x - width / 2, start), end - width), y: Math.max(y - height - 11, 0), width, height };
  }
}

// As much of a text as fits into a width.
function shorten(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 0 && context.measureText(`${text.slice(0, length)}…`).width > width) length -= 1;
  return `${text.slice(0, length).trimEnd()}…`;
}

function traceCircle(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
}
