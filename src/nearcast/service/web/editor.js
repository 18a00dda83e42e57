// How is a subscription made? A kind, a place, words, and sliders whose effect is seen at once.

import { api } from "./api.js";
import { Drawing } from "./drawing.js";
import { KINDS, SLIDERS, iconOf, wordsOf } from "./kinds.js";

const $ = (id) => document.getElementById(id);
const PAUSE_MS = 120;  // between two looks at what a draft would hold
const IDEAS = 5;

export class Editor {
  constructor(world, map, results, told) {
    Object.assign(this, { world, map, results, told });
    this.form = $("editor");
    this.turn = this.shown = 0;   // looks that were begun, and the latest that is shown
    this.fill();
    this.drawing = new Drawing(map, { line: $("drawing"), drawn: (place, isByKeys) => this.placed(place, isByKeys) });
    this.form.addEventListener("input", () => this.changed());
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.save(); });
    $("draw").addEventListener("click", (event) => this.drawing.start(this.kind.shape, event.detail === 0));
    $("centre").addEventListener("click", () => this.placed(this.shaped(map.middle)));
    $("cancel").addEventListener("click", () => this.close());
    $("delete").addEventListener("click", () => this.remove());
    addEventListener("keydown", (event) => { if (event.key === "Escape" && !this.form.hidden) this.escape(); });
  }

  fill() {
    const option = (value) => Object.assign(document.createElement("option"), { value });
    const people = this.world.people ?? [], said = this.world.words ?? [];
    this.form.querySelector("#kinds .tiles").innerHTML = Object.entries(KINDS).map(([kind, { label }]) =>
      `<label class="tile"><input type="radio" name="kind" value="${kind}">${iconOf(kind)}<span>${label}</span></label>`).join("");
    $("sliders").innerHTML = Object.entries(SLIDERS).map(([name, { title, ends, min, max, step, says, example }]) =>
      `<div class="slider" id="slider-${name}"><label for="${name}">${title} <code>${name}</code></label>` +
      `<output id="${name}-value" for="${name}"></output>` +
      `<input type="range" id="${name}" min="${min}" max="${max}" step="${step}" aria-describedby="${name}-says">` +
      `<span class="ends" aria-hidden="true"><i>${ends[0]}</i><i>${ends[1]}</i></span>` +
      `<small id="${name}-says" class="quiet">${says} <i>${example}</i></small></div>`).join("");
    $("words").append(...said.map(option));
    $("people").append(...people.map(option));
    const every = Math.max(1, Math.floor(said.length / IDEAS));
    $("ideas").append(...said.filter((_, i) => i % every === 0).slice(0, IDEAS).map((word) => {
      const idea = Object.assign(document.createElement("button"), { type: "button", className: "idea", textContent: word });
      idea.addEventListener("click", () => this.add(word));
      return idea;
    }));
  }

  get name() { return this.form.elements.kind.value; }
  get kind() { return KINDS[this.name]; }
  get isOpen() { return !this.form.hidden; }
  get openId() { return this.isOpen && !this.isNew ? $("id").value : null; }

  open(subscription, { isByKeys = false } = {}) {
    this.drawing.stop();
    this.halt();
    this.isNew = !subscription;
    const given = subscription ?? { id: `mine-${Date.now().toString(36).slice(-5)}`, kind: "topk", keywords: "" };
    this.place = given.region ?? given.location ?? null;
    $("editor-title").textContent = this.isNew ? "New subscription" : wordsOf(given);
    $("id").value = given.id;
    $("id").readOnly = !this.isNew;
    this.form.elements.kind.value = given.kind;
    $("keywords").value = wordsOf(given);
    $("user").value = given.user ?? this.world.people?.[0] ?? "";
    this.exact = {};
    for (const [name, { start }] of Object.entries(SLIDERS)) {
      $(name).value = given[name] ?? start;
      this.exact[name] = { value: given[name] ?? start, shown: $(name).value };
    }
    $("delete").hidden = this.isNew;
    $("listing").hidden = true;
    this.form.hidden = false;
    this.told.opened();
    this.saved = this.isNew ? null : this.said();
    this.changed();
    this.form.querySelector(":checked").focus({ preventScroll: true });
    this.form.parentElement.scrollTop = 0;
    if (this.isNew && !isByKeys) this.drawing.start(this.kind.shape);
  }

  close() {
    this.drawing.stop();
    this.form.hidden = true;
    $("listing").hidden = false;
    this.halt();
    this.map.show("draft", []);
    this.results.close();
    this.told.closed($("id").value);
  }

  escape() {
    if (this.drawing.stop()) { this.changed(); $("draw").focus(); } else this.close();
  }

  add(word) {
    const before = $("keywords").value.trim();
    $("keywords").value = before ? `${before} ${this.name === "boolean" ? "OR " : ""}${word}` : word;
    this.changed();
  }

  draft() {
    const { shape, sliders } = this.kind;
    const place = this.place && { [shape === "box" ? "region" : "location"]: this.place };
    const numbers = Object.fromEntries(sliders.map((name) => [name, this.number(name)]));
    const user = this.name === "social" && { user: $("user").value };
    return { id: $("id").value, kind: this.name, keywords: $("keywords").value.trim(), ...place, ...numbers, ...user };
  }

  // Where a slider stands; as long as it was not moved, the number that was given, which may lie between its steps.
  number(name) {
    const { value, shown } = this.exact[name];
    return $(name).value === shown ? value : Number($(name).value);
  }

  said() { return JSON.stringify(this.draft()); }

  placed(place, isByKeys) {
    this.place = place;
    this.changed();
    if (isByKeys !== undefined) $("keywords").focus({ preventScroll: true });
  }

  // A place as the kind needs it: a box around a pin, or the middle of a box.
  shaped(place) {
    const isBox = place.length === 4;
    if (isBox === (this.kind.shape === "box")) return place;
    if (isBox) return [(place[0] + place[2]) / 2, (place[1] + place[3]) / 2];
    const [x, y] = place, [xmin, ymin, xmax, ymax] = this.map.frame.bounds, dx = (xmax - xmin) / 10, dy = (ymax - ymin) / 10;
    return [Math.max(xmin, x - dx), Math.max(ymin, y - dy), Math.min(xmax, x + dx), Math.min(ymax, y + dy)];
  }

  changed() {
    const { kind } = this;
    if (this.place) this.place = this.shaped(this.place);
    if (this.drawing.shape && this.drawing.shape !== kind.shape) this.drawing.start(kind.shape, this.drawing.isByKeys);
    for (const [name, { step }] of Object.entries(SLIDERS)) {
      $(`slider-${name}`).hidden = !kind.sliders.includes(name);
      $(`${name}-value`).textContent = this.number(name).toFixed(step < 1 ? 2 : 0);
    }
    $("whose").hidden = this.name !== "social";
    $("kind-says").textContent = kind.says;
    $("keywords-says").textContent = kind.words;
    $("draw").textContent = `${this.place ? "Draw anew" : kind.shape === "box" ? "Draw a box" : "Drop a pin"}`;
    $("where").textContent = this.place ? this.map.frame.saidPlace(this.place) : "not on the map yet";
    $("save").textContent = this.isNew ? "Save" : "Save changes";
    $("save").disabled = !this.isNew && this.said() === this.saved;
    $("fault").textContent = "";
    this.results.sketch(this.draft());
    this.lookSoon();
  }

  // Look in a moment, however fast changes come, and never twice at once.
  lookSoon() {
    if (this.pause !== undefined) return;
    const own = this.pause = setTimeout(async () => {
      await this.looking;
      if (this.pause !== own) return;
      this.pause = undefined;
      this.look();
    }, PAUSE_MS);
  }

  // Forget what is on its way.
  halt() {
    clearTimeout(this.pause);
    this.pause = undefined;
    this.shown = ++this.turn;
  }

  look() { return this.looking = this.found(++this.turn); }

  // Show what it holds if it is saved as it stands, and what it would hold if not; what comes late is not shown.
  async found(turn) {
    const draft = this.draft();
    if (!this.place || !draft.keywords) {
      this.shown = turn;
      return this.results.wait(this.place ? "words" : "place");
    }
    try {
      const found = this.said() === this.saved ? await this.results.held(draft) : await this.results.previewed(draft);
      if (turn <= this.shown || draft.kind !== this.name) return;
      this.shown = turn;
      this.results.show(found, this.draft());
    } catch (error) {
      if (turn > this.shown && this.pause === undefined) $("fault").textContent = error.message;
    }
  }

  async save() {
    if (!this.place) return void ($("fault").textContent = "location must be on the map; draw it, or take the middle");
    await this.tried(async () => {
      const draft = this.draft();
      await api.put(draft);
      this.isNew = false;
      this.saved = JSON.stringify(draft);
      $("editor-title").textContent = wordsOf(draft);
      $("id").readOnly = true;
      $("delete").hidden = false;
      this.told.saved(draft);
      this.changed();
    });
  }

  async remove() {
    await this.tried(async () => {
      this.halt();
      await this.looking;   // nobody asks for what is gone
      await api.remove($("id").value);
      this.told.removed($("id").value);
      this.close();
    });
  }

  async tried(work) {
    try {
      await work();
    } catch (error) {
      $("fault").textContent = error.message;
    }
  }
}
