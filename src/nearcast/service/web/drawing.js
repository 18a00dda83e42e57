// How is a place drawn? A pin with one click; a box by dragging, or with two clicks: mouse, finger or pen alike. By
// keyboard, arrows move the map and Enter takes its middle. Escape gives up.

const MOVED_PX = 8;   // less is a click

export class Drawing {
  constructor(world, { line, drawn }) {
    this.world = world;
    this.line = line;
    this.drawn = drawn;
    this.canvas = world.map.getCanvas();
    for (const [name, heard] of Object.entries({ pointerdown: "pressed", pointermove: "moved", pointerup: "let", pointercancel: "lost" })) {
      this.canvas.parentElement.addEventListener(name, (event) => this.shape && event.isPrimary && this[heard](event));
    }
    this.canvas.addEventListener("keydown", (event) => {
      if (this.shape && event.key === "Enter") { event.preventDefault(); this.put(this.world.middle); }
    });
    world.map.on("move", () => { if (this.isByKeys && this.first) this.sketch(this.world.middle); });
  }

  // Ask for a shape; `isByKeys` if nobody has a pointer in hand.
  start(shape, isByKeys = false) {
    this.stop();
    Object.assign(this, { shape, isByKeys, first: null, pressedAt: null });
    this.world.isDrawing = true;
    this.world.unpin();
    if (shape === "box") this.world.map.dragPan.disable();
    this.world.map.getContainer().dataset.drawing = isByKeys ? "keys" : "pointer";
    this.say();
    if (isByKeys) this.aim();
  }

  // Mark the middle, which Enter takes.
  aim() {
    const { map } = this.world, { x, y } = map.project(map.getCenter()), { style } = map.getContainer();
    style.setProperty("--x", `${x}px`);
    style.setProperty("--y", `${y}px`);
    this.canvas.focus();
  }

  stop() {
    if (!this.shape) return false;
    this.shape = null;
    this.world.isDrawing = false;
    this.world.landed = performance.now();
    this.world.map.dragPan.enable();
    delete this.world.map.getContainer().dataset.drawing;
    this.line.hidden = true;
    return true;
  }

  say() {
    const isPin = this.shape === "pin", corner = this.first ? "the other corner" : "a corner";
    const says = this.isByKeys ? `Move the map with the arrow keys; Enter ${isPin ? "drops the pin" : `sets ${corner}`}`
      : isPin ? "Click the map to drop the pin" : this.first ? "Click the other corner" : "Drag a box over the map, or click two corners";
    this.line.textContent = `${says}. Escape gives up.`;
    this.line.hidden = false;
  }

  at(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const { lng, lat } = this.world.map.unproject([event.clientX - left, event.clientY - top]);
    return this.world.frame.toWorld([lng, lat]);
  }

  pressed(event) {
    this.isByKeys = false;
    this.pressedAt = [event.clientX, event.clientY];
    this.from = this.at(event);
  }

  moved(event) {
    if (this.shape !== "box") return;
    if (this.first) this.sketch(this.at(event));
    else if (this.pressedAt && this.hasMoved(event)) this.sketch(this.at(event), this.from);
  }

  let(event) {
    if (!this.pressedAt) return;
    const wasDragged = this.hasMoved(event), from = this.from;
    this.pressedAt = null;
    if (this.shape === "pin") { if (!wasDragged) this.put(this.at(event)); return; }
    if (wasDragged && !this.first) this.first = from;
    this.put(this.at(event));
  }

  lost() { this.pressedAt = null; }

  hasMoved(event) {
    return Math.hypot(event.clientX - this.pressedAt[0], event.clientY - this.pressedAt[1]) > MOVED_PX;
  }

  put(place) {
    if (this.shape === "box" && !this.first) { this.first = place; return void this.say(); }
    const drawn = this.shape === "box" ? between(this.first, place) : place;
    const isByKeys = this.isByKeys;
    this.stop();
    this.drawn(drawn, isByKeys);
  }

  sketch(to, from = this.first) {
    this.world.show("draft", [this.world.frame.box(between(from, to), { is: "area" })]);
  }
}

const between = ([ax, ay], [bx, by]) => [Math.min(ax, bx), Math.min(ay, by), Math.max(ax, bx), Math.max(ay, by)];
