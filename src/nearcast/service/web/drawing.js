// Drawing of a place: a pin with one click; a box by dragging or with two clicks, by mouse, touch or pen. With the
// keyboard, arrow keys move the map and Enter takes its centre. Escape cancels.

import { capitalised, CLICK, ESCAPE } from "./wording.js";

const DRAG_PX = 8;   // shorter movements are clicks

export class Drawing {
  constructor(map, { status, onDrawn }) {
    this.map = map;
    this.status = status;
    this.onDrawn = onDrawn;
    this.canvas = map.map.getCanvas();
    for (const [event, handler] of Object.entries({ pointerdown: "press", pointermove: "move", pointerup: "release", pointercancel: "cancelPress" })) {
      this.canvas.parentElement.addEventListener(event, (pointer) => this.shape && pointer.isPrimary && this[handler](pointer));
    }
    this.canvas.addEventListener("keydown", (event) => {
      if (this.shape && event.key === "Enter") { event.preventDefault(); this.place(this.map.centre); }
    });
    map.map.on("move", () => { if (this.byKeyboard && this.firstCorner) this.sketch(this.map.centre); });
  }

  // Start drawing a "point" or a "box".
  start(shape, byKeyboard = false) {
    this.stop();
    Object.assign(this, { shape, byKeyboard, firstCorner: null, pressedAt: null });
    this.map.isDrawing = true;
    this.map.closePopup();
    if (shape === "box") this.map.map.dragPan.disable();
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

  showStatus() {
    const isPoint = this.shape === "point", corner = this.firstCorner ? "the opposite corner" : "a corner";
    const text = this.byKeyboard ? `Move the map with the arrow keys; Enter ${isPoint ? "drops the pin" : `sets ${corner}`}`
      : isPoint ? `${capitalised(CLICK)} the map to drop the pin` : this.firstCorner ? `${capitalised(CLICK)} ${corner}`
      : `Drag a box on the map, or ${CLICK} two corners`;
    this.status.textContent = `${text}.${ESCAPE}`;
    this.status.hidden = false;
  }

  locationOf(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const { lng, lat } = this.map.map.unproject([event.clientX - left, event.clientY - top]);
    return this.map.projection.fromMap([lng, lat]);
  }

  press(event) {
    this.byKeyboard = false;
    this.pressedAt = [event.clientX, event.clientY];
    this.pressedLocation = this.locationOf(event);
  }

  move(event) {
    if (this.shape !== "box") return;
    if (this.firstCorner) this.sketch(this.locationOf(event));
    else if (this.pressedAt && this.isDrag(event)) this.sketch(this.locationOf(event), this.pressedLocation);
  }

  release(event) {
    if (!this.pressedAt) return;
    const isDrag = this.isDrag(event), start = this.pressedLocation;
    this.pressedAt = null;
    if (this.shape === "point") { if (!isDrag) this.place(this.locationOf(event)); return; }
    if (isDrag && !this.firstCorner) this.firstCorner = start;
    this.place(this.locationOf(event));
  }

  cancelPress() { this.pressedAt = null; }

  isDrag(event) {
    return Math.hypot(event.clientX - this.pressedAt[0], event.clientY - this.pressedAt[1]) > DRAG_PX;
  }

  // Take a location as the pin, or as the next corner.
  place(location) {
    if (this.shape === "box" && !this.firstCorner) { this.firstCorner = location; return void this.showStatus(); }
    const drawn = this.shape === "box" ? boxOf(this.firstCorner, location) : location;
    const { byKeyboard } = this;
    this.stop();
    this.onDrawn(drawn, byKeyboard);
  }

  sketch(to, from = this.firstCorner) {
    this.map.show("draft", [this.map.projection.box(boxOf(from, to), { is: "area" })]);
  }
}

const boxOf = ([ax, ay], [bx, by]) => [Math.min(ax, bx), Math.min(ay, by), Math.max(ax, bx), Math.max(ay, by)];
