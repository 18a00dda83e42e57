// Drawing of a place, by mouse, touch or pen: a pin with one click; a box or a circle by dragging or with two clicks; a
// polygon with a click per corner, which a double click, a click on the first corner or Enter ends. With the keyboard,
// arrow keys move the map and Enter takes its centre, at the same place again the end. Backspace takes the last corner
// back, and Escape cancels.

import { circle, polygon } from "./regions.js";
import { capitalised, CLICK, ESCAPE } from "./wording.js";

const DRAG_PX = 8;   // shorter movements are clicks, and so near are two clicks in one place
const MIN_CORNERS = 3;

const boxOf = ([ax, ay], [bx, by]) => [Math.min(ax, bx), Math.min(ay, by), Math.max(ax, bx), Math.max(ay, by)];

// What each shape is made of. One with a fixed number of points is complete when it has them.
const SHAPES = {
  point: { nPoints: 1, make: (map, at) => at },
  box: { nPoints: 2, make: (map, from, to) => boxOf(from, to), drag: "Drag a box on the map", next: ["a corner", "the opposite corner"] },
  circle: {
    nPoints: 2, make: (map, centre, edge) => circle(centre, map.projection.distance(centre, edge)),
    drag: "Drag a circle from its centre", next: ["its centre", "its edge"],
  },
  polygon: { make: (map, ...corners) => polygon(corners) },
};

export class Drawing {
  constructor(map, { status, onDrawn }) {
    this.map = map;
    this.status = status;
    this.onDrawn = onDrawn;
    this.canvas = map.map.getCanvas();
    for (const [event, handler] of Object.entries({ pointerdown: "press", pointermove: "move", pointerup: "release", pointercancel: "cancelPress" })) {
      this.canvas.parentElement.addEventListener(event, (pointer) => this.shape && pointer.isPrimary && this[handler](pointer));
    }
    addEventListener("keydown", (event) => this.shape && this.handleKey(event), { capture: true });
    map.map.on("move", () => { if (this.byKeyboard && this.points.length) this.sketch(this.map.centre); });
  }

  // Start drawing a "point", a "box", a "circle" or a "polygon" for a field.
  start(shape, { field, byKeyboard = false } = {}) {
    this.stop();
    Object.assign(this, { shape, field, byKeyboard, points: [], pressedAt: null });
    this.map.isDrawing = true;
    this.map.closePopup();
    if (this.isDragged) this.map.map.dragPan.disable();
    this.map.map.getContainer().dataset.drawing = byKeyboard ? "keyboard" : "pointer";
    this.showStatus();
    if (byKeyboard) this.markCentre();
  }

  // Mark the centre, which Enter takes.
  markCentre() {
    const { map } = this.map, { x, y } = map.project(map.getCenter()), { style } = map.getContainer();
    style.setProperty("--x", `${x}px`);
    style.setProperty("--y", `${y}px`);
    this.canvas.focus();
  }

  stop() {
    if (!this.shape) return false;
    this.shape = null;
    this.map.isDrawing = false;
    this.map.drawnAt = performance.now();
    this.map.map.dragPan.enable();
    delete this.map.map.getContainer().dataset.drawing;
    this.status.hidden = true;
    return true;
  }

  get parts() { return SHAPES[this.shape]; }
  get isDragged() { return this.parts.nPoints === 2; }

  showStatus() {
    this.status.textContent = `${this.byKeyboard ? this.keyboardText : this.pointerText}.${ESCAPE}`;
    this.status.hidden = false;
  }

  get keyboardText() {
    const n = this.points.length, move = "Move the map with the arrow keys; Enter";
    if (this.shape === "point") return `${move} drops the pin`;
    if (this.isDragged) return `${move} sets ${this.parts.next[n]}`;
    return `${move} sets a corner${n >= MIN_CORNERS ? ", and a second time ends the polygon" : ""}`;
  }

  get pointerText() {
    const n = this.points.length, click = capitalised(CLICK);
    if (this.shape === "point") return `${click} the map to drop the pin`;
    if (this.isDragged) return n ? `${click} ${this.parts.next[n]}` : `${this.parts.drag}, or ${CLICK} ${this.shape === "box" ? "two corners" : "its centre and its edge"}`;
    return n < MIN_CORNERS ? `${click} the corners of the polygon` : `${click} the next corner; a double ${CLICK} ends the polygon`;
  }

  locationOf(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const { lng, lat } = this.map.map.unproject([event.clientX - left, event.clientY - top]);
    return this.map.projection.fromMap([lng, lat]);
  }

  handleKey(event) {
    const isOnMap = document.activeElement === this.canvas || document.activeElement === document.body;
    if (event.key === "Enter" && this.byKeyboard && document.activeElement === this.canvas) this.place(this.map.centre);
    else if (event.key === "Enter" && this.canEnd && isOnMap) this.end();
    else if (event.key === "Backspace" && this.points.length && isOnMap) this.takeBack();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  press(event) {
    this.byKeyboard = false;
    this.pressedAt = [event.clientX, event.clientY];
    this.pressedLocation = this.locationOf(event);
  }

  move(event) {
    if (this.points.length) this.sketch(this.locationOf(event));
    else if (this.isDragged && this.pressedAt && this.isDrag(event)) this.sketch(this.locationOf(event), [this.pressedLocation]);
  }

  release(event) {
    if (!this.pressedAt) return;
    const isDrag = this.isDrag(event), start = this.pressedLocation;
    this.pressedAt = null;
    if (isDrag && !this.isDragged) return;   // the map was moved
    if (isDrag && !this.points.length) this.points = [start];
    this.place(this.locationOf(event));
  }

  cancelPress() { this.pressedAt = null; }

  isDrag(event) {
    return Math.hypot(event.clientX - this.pressedAt[0], event.clientY - this.pressedAt[1]) > DRAG_PX;
  }

  // Whether two locations are in one place on the screen.
  isNear(a, b) {
    const [p, q] = [a, b].map((at) => this.map.map.project(this.map.projection.toMap(at)));
    return Math.hypot(p.x - q.x, p.y - q.y) <= DRAG_PX;
  }

  get canEnd() { return this.shape === "polygon" && this.points.length >= MIN_CORNERS; }

  // Take a location as the next point. One in the place of the last or first corner ends a polygon.
  place(location) {
    const { points } = this, last = points.at(-1);
    if (last && this.isNear(last, location)) return void (this.canEnd && this.end());
    if (this.canEnd && this.isNear(points[0], location)) return this.end();
    points.push(location);
    if (points.length === this.parts.nPoints) return this.end();
    this.showStatus();
    this.sketch(location);
  }

  takeBack() {
    this.points.pop();
    this.showStatus();
    this.sketch(this.points.at(-1));
  }

  end() {
    const { byKeyboard, field, points } = this, drawn = this.parts.make(this.map, ...points);
    this.stop();
    this.onDrawn(drawn, { field, byKeyboard });
  }

  // Show what is drawn so far, as if a location were its next point.
  sketch(to, points = this.points) {
    const { projection } = this.map, all = to && points.length ? [...points, to] : points;
    const isArea = all.length >= (this.parts.nPoints ?? MIN_CORNERS);
    const lines = isArea ? projection.region(this.parts.make(this.map, ...all), { is: "area" })
      : all.slice(1).map((at, i) => projection.line(all[i], at, { is: "area" }));
    const corners = this.shape === "polygon" ? points.map((at) => projection.point(at, { is: "corner" })) : [];
    this.map.show("draft", [...lines, ...corners]);
  }
}
