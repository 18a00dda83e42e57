// How is a subscription made? A name, a kind, a place, words, and sliders whose effect is seen at once.

import { api } from "./api.js";
import { KINDS, SLIDERS } from "./kinds.js";
import { box } from "./map.js";

const $ = (id) => document.getElementById(id);
const PAUSE_MS = 120;  // after the last change, before it is looked at

export class Editor {
  constructor(map, { saved, removed }) {
    this.map = map;
    this.told = { saved, removed };
    this.form = $("editor");
    $("kinds").insertAdjacentHTML("beforeend", Object.entries(KINDS).map(([kind, { says }]) =>
      `<label><input type="radio" name="kind" value="${kind}"> ${kind} <small>${says}</small></label>`).join(""));
    $("sliders").innerHTML = Object.entries(SLIDERS).map(([name, { min, max, step, says, example }]) =>
      `<div class="slider" id="slider-${name}"><label for="${name}">${name} <output id="${name}-value"></output></label>` +
      `<input type="range" id="${name}" min="${min}" max="${max}" step="${step}" aria-describedby="${name}-says">` +
      `<small id="${name}-says">${says} <i>${example}</i></small></div>`).join("");
    this.form.addEventListener("input", () => this.changed());
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.save(); });
    $("draw").addEventListener("click", () => this.map.draw(this.kind.shape, (place) => this.placed(place)));
    $("centre").addEventListener("click", () => this.placed(this.inMiddle()));
    $("cancel").addEventListener("click", () => this.close());
    $("delete").addEventListener("click", () => this.remove());
  }

  get name() { return this.form.elements.kind.value || "topk"; }
  get kind() { return KINDS[this.name]; }

  open(subscription) {
    this.isNew = !subscription;
    const given = subscription ?? { id: `mine-${Date.now().toString(36)}`, kind: "topk", keywords: "" };
    this.place = given.region ?? given.location ?? null;
    $("editor-title").textContent = this.isNew ? "New subscription" : given.id;
    $("id").value = given.id;
    $("id").readOnly = !this.isNew;
    this.form.elements.kind.value = given.kind in KINDS ? given.kind : "topk";
    $("keywords").value = Array.isArray(given.keywords) ? given.keywords.join(" ") : given.keywords;
    for (const [name, { start }] of Object.entries(SLIDERS)) $(name).value = given[name] ?? start;
    $("delete").hidden = this.isNew;
    this.form.hidden = false;
    this.changed();
    (this.isNew ? $("keywords") : $("cancel")).focus();
  }

  close() {
    this.map.stop?.();
    this.form.hidden = true;
    this.map.show("draft", []);
    $("results").hidden = true;
  }

  draft() {
    const place = this.place && { [this.kind.shape === "box" ? "region" : "location"]: this.place };
    const numbers = Object.fromEntries(this.kind.sliders.map((name) => [name, Number($(name).value)]));
    return { id: $("id").value, kind: this.name, keywords: $("keywords").value, ...place, ...numbers };
  }

  placed(place) {
    this.place = place;
    this.changed();
    $("keywords").focus();
  }

  inMiddle() {
    const [x, y] = this.map.middle(), [xmin, ymin, xmax, ymax] = this.map.world.bounds;
    if (this.kind.shape === "pin") return [x, y];
    const dx = (xmax - xmin) / 12, dy = (ymax - ymin) / 12;
    return [Math.max(xmin, x - dx), Math.max(ymin, y - dy), Math.min(xmax, x + dx), Math.min(ymax, y + dy)];
  }

  changed() {
    if (this.place && (this.place.length === 4) !== (this.kind.shape === "box")) this.place = null;
    for (const name of Object.keys(SLIDERS)) {
      $(`slider-${name}`).hidden = !this.kind.sliders.includes(name);
      $(`${name}-value`).textContent = $(name).value;
    }
    $("draw").textContent = this.kind.shape === "box" ? "Draw a box: click two corners" : "Drop a pin: click the map";
    $("where").textContent = this.place ? `at ${this.place.map((v) => v.toFixed(4)).join(", ")}` : "not on the map yet";
    this.sketch([]);
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.preview(), PAUSE_MS);
  }

  sketch(results) {
    if (!this.place) return this.map.show("draft", []);
    const isBox = this.place.length === 4;
    const own = isBox ? { ...box(this.place), properties: { is: "area" } } : point(this.place, "pin");
    const found = results.filter(({ location }) => location);
    const threads = isBox ? [] : found.map(({ location }) => ({
      type: "Feature", properties: { is: "thread" }, geometry: { type: "LineString", coordinates: [this.place, location] },
    }));
    this.map.show("draft", [...threads, own, ...found.map(({ location }) => point(location, "result"))]);
  }

  async preview() {
    const draft = this.draft(), asked = this.asked = Symbol();
    $("fault").textContent = "";
    if (!this.place || !draft.keywords.trim()) return list([]);
    try {
      const { results } = await api.preview(draft);
      if (asked !== this.asked || this.form.hidden) return;
      list(results);
      this.sketch(results);
    } catch (error) {
      if (asked === this.asked) $("fault").textContent = error.message;
    }
  }

  async save() {
    if (!this.place) return void ($("fault").textContent = "location must be on the map; draw it, or take the middle");
    try {
      const draft = this.draft();
      await api.put(draft);
      this.told.saved(draft);
      this.isNew = false;
      $("delete").hidden = false;
    } catch (error) {
      $("fault").textContent = error.message;
    }
  }

  async remove() {
    try {
      await api.remove($("id").value);
      this.told.removed($("id").value);
      this.close();
    } catch (error) {
      $("fault").textContent = error.message;
    }
  }
}

const point = (coordinates, is) => ({ type: "Feature", properties: { is }, geometry: { type: "Point", coordinates } });

// Show ranked results, each with what its score is made of.
function list(results) {
  $("results").hidden = false;
  $("results-title").textContent = results.length ? `Results now: ${results.length}` : "Nothing reaches it now";
  $("ranked").replaceChildren(...results.slice(0, 50).map(({ text, message, score, parts }) => {
    const item = document.createElement("li");
    item.innerHTML = `<span class="score">${score.toFixed(3)}</span><span></span><div class="parts"></div>`;
    item.children[1].textContent = Array.isArray(text) ? text.join(" ") : text ?? message;
    for (const { name, value, weight, note } of parts ?? []) {
      item.children[2].insertAdjacentHTML("beforeend", `<span></span><meter min="0" max="1"></meter><span></span>`);
      const [label, bar, share] = [...item.children[2].children].slice(-3);
      label.textContent = name;
      bar.value = value;
      bar.title = note;
      bar.setAttribute("aria-label", `${name}: ${note}`);
      share.textContent = weight === null ? "" : `× ${weight.toFixed(2)}`;
    }
    return item;
  }));
}
