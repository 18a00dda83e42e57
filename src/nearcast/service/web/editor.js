// The editor of a subscription: a kind, a place, words, the other fields of the kind, and its filters. The result follows
// every change.

import { api } from "./api.js";
import { Drawing } from "./drawing.js";
import { textFrom } from "./kinds.js";
import { centreOf, isRegion, SHAPES, shapeOf } from "./regions.js";
import { capitalised, PRESS } from "./wording.js";

const $ = (id) => document.getElementById(id);
const DELAY_MS = 120;  // between two refreshes of the result
const N_SUGGESTIONS = 5;
const ATTRIBUTE_TYPES = { float: "a number", int: "an integer", str: "a text", bool: "true or false" };

export class Editor {
  constructor({ config, kinds, map, results }, callbacks) {
    Object.assign(this, { config, kinds, map, results, callbacks });
    this.form = $("editor");
    this.values = {};   // last value of each number, id and filter, across kinds
    this.lastRequest = this.lastShown = 0;
    this.render();
    this.drawing = new Drawing(map, { status: $("drawing"), onDrawn: (place, { field, byKeyboard }) => this.setPlace(place, { field, byKeyboard }) });
    this.form.addEventListener("input", () => this.handleChange());
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.save(); });
    $("draw").addEventListener("click", (event) => this.draw(this.kind.placeField, event));
    $("shapes").addEventListener("change", () => this.draw(this.kind.placeField, { detail: this.drawing.byKeyboard ? 0 : 1 }));
    $("use-centre").addEventListener("click", () => { this.drawing.stop(); this.setPlace(this.fitPlace(map.centre)); });
    $("cancel").addEventListener("click", () => this.leave());
    $("delete").addEventListener("click", () => this.remove());
    $("more-results").addEventListener("click", () => { results.extend(); this.refreshResults(); });
    addEventListener("keydown", (event) => { if (event.key === "Escape" && this.isOpen) this.cancel(); });
  }

  render() {
    const option = (value) => Object.assign(document.createElement("option"), { value });
    const { terms, users } = this.config;
    this.form.querySelector("#kinds .tiles").append(...this.kinds.all.map(tileOf));
    $("shapes").append(...SHAPES.map((shape, i) => choiceOf("shape", shape, i === 0)));
    $("terms").append(...terms.map(option));
    $("users").append(...users.map(option));
    const step = Math.max(1, Math.floor(terms.length / N_SUGGESTIONS));
    $("suggestions").append(...terms.filter((_, i) => i % step === 0).slice(0, N_SUGGESTIONS).map((term) => {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "suggestion", textContent: term });
      button.addEventListener("click", () => this.addWord(term));
      return button;
    }));
  }

  // Show the fields of the current kind, with the values that they had before.
  renderFields() {
    const { kind } = this;
    if (this.renderedKind === kind) return;
    this.renderedKind = kind;
    $("kind-help").textContent = kind.help;
    $("place-field").hidden = !kind.placeField;
    $("place-title").textContent = kind.placeField?.label ?? "";
    $("words-field").hidden = !kind.textField;
    $("keywords-title").textContent = kind.textField?.label ?? "";
    $("keywords-help").textContent = kind.textField?.help ?? "";
    $("keywords").placeholder = kind.textField?.example ?? "";
    $("fields").replaceChildren(...kind.idFields.map(inputOf), ...kind.numberFields.map(sliderOf));
    $("shapes").hidden = !kind.isRegion;
    $("filters").hidden = !kind.regionFilters.length && !kind.textFilters.length;
    $("filter-fields").replaceChildren(...kind.regionFilters.map((field) => this.regionOf(field)),
      ...kind.textFilters.map((field) => filterOf(field, this.hintOf(field))));
    for (const { name } of kind.textFilters) this.inputFor(name).value = textFrom(this.values[name]);
    for (const { name } of kind.idFields) this.inputFor(name).value = this.values[name] ?? this.config.users[0] ?? "";
    this.exact = {};
    for (const { name, start } of kind.numberFields) {
      const value = this.values[name] ?? start;
      this.inputFor(name).value = value;
      this.exact[name] = { value, shown: this.inputFor(name).value };
    }
  }

  inputFor(name) { return $(`field-${name}`); }

  // A field for a region that filters: buttons that draw one of each shape, and one that removes it.
  regionOf({ name, label, help }) {
    const field = Object.assign(document.createElement("div"), { className: "field" }), row = document.createElement("div");
    field.innerHTML = `<b id="field-${name}-title"></b> <span class="drawn" id="field-${name}" role="status"></span>`;
    field.firstChild.textContent = label || name;
    const button = (text, title, onClick) => {
      const made = Object.assign(document.createElement("button"), { type: "button", textContent: text, ariaLabel: title });
      made.addEventListener("click", onClick);
      return made;
    };
    row.className = "row";
    row.setAttribute("role", "group");
    row.setAttribute("aria-labelledby", `field-${name}-title`);
    row.append(...SHAPES.map((shape) => button(capitalised(shape), `Draw a ${shape}`, (event) => this.draw({ name, form: "region" }, event, shape))));
    row.append(button("Remove", `Remove the region`, () => { this.drawing.stop(); this.setPlace(null, { field: name }); }));
    row.lastChild.id = `field-${name}-remove`;
    field.append(row, Object.assign(document.createElement("small"), { className: "muted", textContent: help }));
    return field;
  }

  // What a condition may name.
  hintOf({ form }) {
    if (form !== "condition") return "";
    const names = Object.entries(this.config.attributes).map(([name, type]) => `${name} (${ATTRIBUTE_TYPES[type]})`);
    return names.length ? `Attributes: ${names.join(", ")}.` : "This service declares no attributes.";
  }

  // Start drawing the place, or a region that filters.
  draw({ name, form }, { detail }, shape = form === "region" ? this.form.elements.shape.value : "point") {
    this.drawing.start(shape, { field: name, byKeyboard: detail === 0 });
  }

  get kind() { return this.kinds.get(this.form.elements.kind.value); }
  get isOpen() { return !this.form.hidden; }
  get savedId() { return this.isOpen && !this.isNew && !this.isRemoving ? $("id").value : null; }

  open(subscription, { byKeyboard = false } = {}) {
    this.drawing.stop();
    this.cancelRefresh();
    this.isNew = !subscription;
    this.fallbackId = `mine-${Date.now().toString(36).slice(-5)}`;
    const given = subscription ?? { id: "", kind: this.kinds.first.kind };
    const kind = this.kinds.get(given.kind);
    this.place = kind.placeOf(given);
    $("editor-title").textContent = this.isNew ? "New subscription" : this.kinds.wordsOf(given);
    $("id").value = given.id;
    $("id").readOnly = !this.isNew;
    this.form.elements.kind.value = given.kind;
    $("keywords").value = kind.wordsOf(given);
    $("keywords-hint").textContent = "";
    const others = [...kind.numberFields, ...kind.idFields, ...kind.regionFilters, ...kind.textFilters];
    this.values = Object.fromEntries(others.map(({ name }) => [name, given[name]]));
    if (this.place && kind.isRegion) this.form.elements.shape.value = shapeOf(this.place);
    $("filters").open = [...kind.regionFilters, ...kind.textFilters].some(({ name }) => given[name] !== undefined);
    this.end = given.expires_at;   // the form does not show it, and saving keeps it
    this.renderedKind = null;
    this.results.reset();
    $("delete").hidden = this.isNew;
    $("list-view").hidden = true;
    this.form.hidden = false;
    this.callbacks.onOpen();
    this.renderFields();
    this.saved = this.isNew ? null : this.draftText();
    this.handleChange();
    if (!this.isNew) {  // what is stored need not wait for further changes
      this.cancelRefresh();
      this.refreshResults();
    }
    this.form.querySelector(":checked").focus({ preventScroll: true });
    this.form.parentElement.scrollTop = 0;
    if (this.isNew && !byKeyboard && kind.placeField) this.draw(kind.placeField, { detail: 1 });
  }

  close() {
    this.drawing.stop();
    this.form.hidden = true;
    $("list-view").hidden = false;
    this.cancelRefresh();
    this.map.show("draft", []);
    this.results.close();
    this.callbacks.onClose($("id").value);
  }

  cancel() {
    if (this.drawing.stop()) { this.handleChange(); $("draw").focus(); } else this.leave();
  }

  // Close, but ask before changes are lost.
  leave() {
    const isChanged = this.isNew ? this.place || $("keywords").value.trim() : this.draftText() !== this.saved;
    if (isChanged && !this.mayDiscard) {
      this.mayDiscard = true;
      $("error").textContent = `This is not saved. ${PRESS} again to discard it.`;
    } else this.close();
  }

  // The id of a new subscription: its name, or else its words, in the characters of an id.
  get newId() { return [$("id").value, $("keywords").value].map(idFrom).find(Boolean) ?? this.fallbackId; }

  addWord(word) {
    const before = $("keywords").value.trim(), operator = this.kind.textField.operators?.at(-1);
    $("keywords").value = before ? [before, operator, word].filter(Boolean).join(" ") : word;
    this.handleChange();
  }

  // The subscription as it stands.
  draft() {
    const { kind } = this, draft = { id: this.isNew ? this.newId : $("id").value, kind: kind.kind };
    if (kind.placeField && this.place) draft[kind.placeField.name] = this.place;
    if (kind.textField) draft[kind.textField.name] = $("keywords").value.trim();
    for (const { name } of kind.numberFields) draft[name] = this.numberOf(name);
    for (const { name } of kind.idFields) draft[name] = this.inputFor(name).value;
    for (const { name } of kind.regionFilters) if (this.values[name]) draft[name] = this.values[name];
    for (const { name } of kind.textFilters) if (this.inputFor(name).value.trim()) draft[name] = this.inputFor(name).value.trim();
    if (this.end !== undefined) draft.expires_at = this.end;
    return draft;
  }

  draftText() { return JSON.stringify(this.draft()); }

  // The value of a slider. Until it is moved, that is the given number, which may lie between two steps.
  numberOf(name) {
    const { value, shown } = this.exact[name], current = this.inputFor(name).value;
    return current === shown ? value : Number(current);
  }

  // Set the place, or the region of a filter.
  setPlace(place, { field = this.kind.placeField?.name, byKeyboard } = {}) {
    if (field === this.kind.placeField?.name) {
      this.place = place;
      if (byKeyboard !== undefined) $("keywords").focus({ preventScroll: true });
    } else this.values[field] = place ?? undefined;
    this.handleChange();
  }

  // Convert a place to the form of the kind: a box around a pin, or the centre of a region.
  fitPlace(place) {
    if (isRegion(place) === this.kind.isRegion) return place;
    if (isRegion(place)) return centreOf(place);
    const [x, y] = place, [xmin, ymin, xmax, ymax] = this.map.projection.bounds, dx = (xmax - xmin) / 10, dy = (ymax - ymin) / 10;
    return [Math.max(xmin, x - dx), Math.max(ymin, y - dy), Math.min(xmax, x + dx), Math.min(ymax, y + dy)];
  }

  handleChange() {
    const { kind } = this, { placeField } = kind;
    this.renderFields();
    if (this.place && placeField) this.place = this.fitPlace(this.place);
    const drawn = this.drawing.shape && (this.drawing.shape === "point" ? "point" : "region");
    if (drawn && placeField && this.isPlaceDrawn && drawn !== placeField.form) this.draw(placeField, { detail: this.drawing.byKeyboard ? 0 : 1 });
    for (const { name, step } of kind.numberFields) {
      this.values[name] = this.numberOf(name);
      $(`field-${name}-value`).textContent = this.values[name].toFixed(step < 1 ? 2 : 0);
    }
    for (const { name } of [...kind.idFields, ...kind.textFilters]) this.values[name] = this.inputFor(name).value;
    for (const { name } of kind.regionFilters) {
      const region = this.values[name];
      this.inputFor(name).textContent = region ? this.map.projection.formatPlace(region) : "anywhere";
      $(`field-${name}-remove`).hidden = !region;
    }
    $("draw").textContent = this.place ? "Draw again" : kind.isRegion ? `Draw a ${this.form.elements.shape.value}` : "Drop a pin";
    $("place").textContent = this.place ? this.map.projection.formatPlace(this.place) : "not on the map yet";
    $("save").textContent = this.isNew ? "Save" : "Save changes";
    $("save").disabled = !this.isNew && this.draftText() === this.saved;
    $("error").textContent = "";
    $("delete").textContent = "Delete";
    this.mayDiscard = this.mayDelete = false;
    this.results.sketch(this.draft());
    this.scheduleRefresh();
  }

  // Whether the place is being drawn, and not the region of a filter.
  get isPlaceDrawn() { return !this.kind.regionFilters.some(({ name }) => name === this.drawing.field); }

  // Refresh the result soon, at most once per delay and never twice at the same time.
  scheduleRefresh() {
    if (this.timer !== undefined) return;
    const own = this.timer = setTimeout(async () => {
      await this.refreshing;
      if (this.timer !== own) return;
      this.timer = undefined;
      this.refreshResults();
    }, DELAY_MS);
  }

  // Drop all refreshes that are under way.
  cancelRefresh() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.lastShown = ++this.lastRequest;
  }

  refreshResults() {
    if (!this.isRemoving) this.refreshing = this.loadResults(++this.lastRequest);
    return this.refreshing;
  }

  // Show the current result of an unchanged subscription, or a preview of a changed one. Outdated answers are dropped.
  async loadResults(number) {
    const draft = this.draft(), { kind } = this;
    const missing = kind.placeField && !this.place ? "place" : kind.textField && !draft[kind.textField.name] ? "words" : null;
    if (missing) {
      this.lastShown = number;
      return this.results.showMissing(missing);
    }
    try {
      const isSaved = this.draftText() === this.saved;
      const found = await (isSaved ? this.results.loadCurrent(draft) : this.results.loadPreview(draft));
      if (number <= this.lastShown || draft.kind !== this.kind.kind) return;
      this.lastShown = number;
      if (!found.isSaved) $("keywords-hint").textContent = found.hints.join(" ");
      this.results.show(found, this.draft());
    } catch (error) {
      if (number > this.lastShown && this.timer === undefined) $("error").textContent = error.message;
    }
  }

  async save() {
    const { placeField, isRegion: isArea } = this.kind;
    if (placeField && !this.place) {
      return void ($("error").textContent = `There is no ${isArea ? "region" : "pin"} yet: ${isArea ? "draw" : "drop"} one on the map, or use its centre.`);
    }
    this.drawing.stop();
    await this.run(async () => {
      const draft = this.draft();
      if (this.isNew) draft.id = await freeId(draft.id, this.fallbackId);
      await api.put(draft);
      $("id").value = draft.id;
      this.isNew = false;
      this.saved = JSON.stringify(draft);
      $("editor-title").textContent = this.kinds.wordsOf(draft);
      $("id").readOnly = true;
      $("delete").hidden = false;
      this.callbacks.onSave(draft);
      this.handleChange();
    });
  }

  // Delete the subscription at the second press.
  async remove() {
    if (!this.mayDelete) {
      this.mayDelete = true;
      return void ($("delete").textContent = `${PRESS} again to delete`);
    }
    this.isRemoving = true;   // no request for a deleted subscription
    await this.run(async () => {
      this.cancelRefresh();
      await this.refreshing;
      await api.remove($("id").value);
      this.callbacks.onDelete($("id").value);
      this.close();
    });
    this.isRemoving = false;
  }

  // Run a request and show its error.
  async run(work) {
    try {
      await work();
    } catch (error) {
      $("error").textContent = error.message;
    }
  }
}

const MAX_ID = 100;   // characters; a number may follow
const N_NUMBERED = 50;

// An id that no subscription has: the given one, else with a number, else with a suffix.
async function freeId(id, suffix) {
  const numbered = [id, ...Array.from({ length: N_NUMBERED }, (_, i) => `${id}-${i + 2}`)];
  const { subscriptions } = await api.subscriptions({ id: numbered, limit: numbered.length });
  const taken = new Set(subscriptions.map((one) => one.id));
  return numbered.find((one) => !taken.has(one)) ?? `${id}-${suffix}`;
}

// A name in the characters of an id: "Café near work" becomes "Cafe-near-work".
function idFrom(name) {
  const plain = name.normalize("NFKD").replace(/\p{M}/gu, "");
  return plain.replace(/[^A-Za-z0-9._~:@-]+/g, "-").replace(/^[-.]+|-+$/g, "").slice(0, MAX_ID);
}

function tileOf({ kind, label, iconSvg }) {
  const tile = Object.assign(document.createElement("label"), { className: "tile" });
  const input = tile.appendChild(Object.assign(document.createElement("input"), { type: "radio", name: "kind", value: kind }));
  input.insertAdjacentHTML("afterend", iconSvg);
  tile.appendChild(document.createElement("span")).textContent = label;
  return tile;
}

// A radio button in a row of choices.
function choiceOf(name, value, isChecked) {
  const choice = document.createElement("label"), input = Object.assign(document.createElement("input"), { type: "radio", name, value, defaultChecked: isChecked });
  choice.append(input, capitalised(value));
  return choice;
}

// An input for a text or a condition that filters.
function filterOf({ name, label, help, example }, hint) {
  const field = Object.assign(document.createElement("div"), { className: "field" }), id = `field-${name}`;
  field.innerHTML = '<label></label><input spellcheck="false"><small class="muted"></small>';
  const [title, input, small] = field.children;
  Object.assign(title, { htmlFor: id, textContent: label || name });
  Object.assign(input, { id, placeholder: example });
  input.setAttribute("aria-describedby", `${id}-help`);
  Object.assign(small, { id: `${id}-help`, textContent: `${help} ${hint}`.trim() });
  return field;
}

function inputOf({ name, label, help, example }) {
  const field = Object.assign(document.createElement("div"), { className: "field" }), id = `field-${name}`;
  field.innerHTML = '<label></label><input list="users"><small class="muted"></small>';
  const [title, input, small] = field.children;
  Object.assign(title, { htmlFor: id, textContent: label || name });
  input.id = id;
  input.setAttribute("aria-describedby", `${id}-help`);
  Object.assign(small, { id: `${id}-help`, textContent: `${help} ${example}`.trim() });
  return field;
}

function sliderOf({ name, label, help, example, minimum, maximum, step, ends }) {
  const slider = Object.assign(document.createElement("div"), { className: "slider" }), id = `field-${name}`;
  slider.innerHTML = '<label></label><output></output><input type="range"><span class="ends" aria-hidden="true"><i></i><i></i></span><small class="muted"></small>';
  const [title, output, input, range, small] = slider.children;
  Object.assign(title, { htmlFor: id, textContent: `${label || name} ` });
  title.appendChild(document.createElement("code")).textContent = name;
  output.id = `${id}-value`;
  output.htmlFor = id;
  Object.assign(input, { id, min: minimum ?? 0, max: maximum ?? 1, step });
  input.setAttribute("aria-describedby", `${id}-help`);
  ends?.forEach((end, i) => { range.children[i].textContent = end; });
  small.id = `${id}-help`;
  small.append(`${help} `, Object.assign(document.createElement("i"), { textContent: example }));
  return slider;
}
