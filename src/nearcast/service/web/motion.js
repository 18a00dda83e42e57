// What moves? Rings where something was just said, threads to whom it reached, and some of the words: drawn over the
// map, frame by frame, only while there is something to see.

import { colour } from "./theme.js";

const LIVES_MS = { ring: 1600, thread: 2200, words: 4200 };
const MOST = { ring: 300, thread: 30, words: 4 };
const APART_MS = 600;   // between words that appear
const STILL_MS = 300;   // between two looks, where nothing is to move
const still = matchMedia("(prefers-reduced-motion: reduce)");

export class Motion {
  constructor(map, frame) {
    this.map = map;
    this.frame = frame;
    this.alive = [];
    this.isShown = true;
    this.spoke = 0;
    this.canvas = Object.assign(document.createElement("canvas"), { className: "motion", ariaHidden: "true" });
    map.getCanvasContainer().append(this.canvas);
    this.pen = this.canvas.getContext("2d");
    this.recolour();
  }

  recolour() {
    this.hues = Object.fromEntries(["message", "own", "picked", "card", "text", "line"].map((name) => [name, colour(name)]));
  }

  pulse(at) { this.add({ is: "ring", at: this.frame.toMap(at) }); }

  connect(from, to, isPicked) {
    this.add({ is: "thread", at: this.frame.toMap(from), to: this.frame.toMap(to), isPicked });
  }

  say(at, text) {
    const now = performance.now();
    if (now - this.spoke < APART_MS || this.alive.some((one) => one.text === text)) return;
    this.spoke = now;
    this.add({ is: "words", at: this.frame.toMap(at), text });
  }

  add(one) {
    if (document.hidden || this.alive.filter(({ is }) => is === one.is).length >= MOST[one.is]) return;
    this.alive.push({ ...one, born: performance.now() });
    this.ask();
  }

  draw() {
    const now = performance.now(), { pen, canvas } = this, { clientWidth: wide, clientHeight: high } = this.map.getCanvas();
    const dense = Math.min(devicePixelRatio, 2);
    if (canvas.width !== wide * dense) canvas.width = wide * dense;
    if (canvas.height !== high * dense) canvas.height = high * dense;
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, wide, high);
    this.alive = this.alive.filter(({ is, born }) => now - born < LIVES_MS[is]);
    this.taken = [];
    for (const one of this.alive) {
      const age = (now - one.born) / LIVES_MS[one.is], { x, y } = this.map.project(one.at);
      if (this.isShown || one.is === "thread") this[one.is](one, x, y, still.matches ? 0.4 : age);
    }
    pen.globalAlpha = 1;
    this.asked = undefined;
    if (this.alive.length) this.ask();
  }

  // Draw again soon; where nothing is to move, only to take away what is over.
  ask() {
    const draw = () => this.draw();
    this.asked ??= still.matches ? setTimeout(draw, STILL_MS) : requestAnimationFrame(draw);
  }

  ring(_, x, y, age) {
    const { pen } = this;
    pen.globalAlpha = (1 - age) * 0.8;
    pen.strokeStyle = pen.fillStyle = this.hues.message;
    pen.lineWidth = 1.5;
    circle(pen, x, y, 3 + 15 * Math.sqrt(age));
    pen.stroke();
    pen.globalAlpha = 1 - age * 0.3;
    circle(pen, x, y, 3.8);
    pen.fill();
  }

  thread({ to, isPicked }, x, y, age) {
    const { pen } = this, end = this.map.project(to), grown = Math.min(1, age * 4);
    const lift = Math.hypot(end.x - x, end.y - y) * 0.18, bend = { x: (x + end.x) / 2, y: (y + end.y) / 2 - lift };
    pen.globalAlpha = (isPicked ? 0.95 : 0.55) * (1 - age);
    pen.strokeStyle = pen.fillStyle = isPicked ? this.hues.picked : this.hues.own;
    pen.lineWidth = isPicked ? 2.4 : 1.3;
    pen.beginPath();
    pen.moveTo(x, y);
    for (let step = 1; step <= 20; step++) {
      const t = grown * step / 20, u = 1 - t;
      pen.lineTo(u * u * x + 2 * u * t * bend.x + t * t * end.x, u * u * y + 2 * u * t * bend.y + t * t * end.y);
    }
    pen.stroke();
    if (grown < 1) return;
    circle(pen, end.x, end.y, 5 + 8 * age);
    pen.stroke();
  }

  words({ text }, x, y, age) {
    const { pen } = this, { top, left, right } = this.map.getPadding();
    pen.font = "500 12px system-ui, sans-serif";
    const wide = pen.measureText(text).width + 16, high = 24, from = { x: x - wide / 2, y: y - high - 11 };
    const end = this.map.getCanvas().clientWidth - right;
    const overlaps = (one) => from.x < one.x + one.wide + 6 && one.x < from.x + wide + 6 && Math.abs(one.y - from.y) < high + 4;
    if (this.taken.some(overlaps) || from.x < left - 30 || from.x + wide > end + 10 || from.y < top - 20) return;
    this.taken.push({ ...from, wide });
    pen.globalAlpha = Math.min(1, age * 12, (1 - age) * 5);
    pen.fillStyle = this.hues.card;
    pen.strokeStyle = this.hues.line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.roundRect(from.x, from.y, wide, high, 12);
    pen.fill();
    pen.stroke();
    pen.fillStyle = this.hues.text;
    pen.fillText(text, from.x + 8, from.y + 16);
  }
}

function circle(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 7);
}
