// The result of the subscription being edited: ranked messages with the parts of their scores, in a list and on the map.

import { api } from "./api.js";
import { textOf } from "./map.js";
import { formatInteger } from "./wording.js";

const $ = (id) => document.getElementById(id);
const PAGE = 50, MAX_PAGE = 1000;
const SINCE_SAVED = "Only messages after it was saved count, so a preview may show more.";
const PART_LABELS = { near: "nearness", text: "words", social: "social graph" };

export class Results {
  constructor(map, { config, kinds, reaches }) {
    Object.assign(this, { map, config, kinds, reaches });
    this.projection = map.projection;
    this.results = [];
    this.reset();
    $("result-list").addEventListener("click", (event) => this.goTo(event));
    for (const [event, isOver] of [["mouseover", true], ["focusin", true], ["mouseleave", false], ["focusout", false]]) {
      $("result-list").addEventListener(event, ({ target }) => this.highlight(isOver ? target.closest("li")?.dataset.message : null));
    }
  }

  // Show the first page of the next result.
  reset() { this.limit = PAGE; }

  // Show one more page.
  extend() { this.limit = Math.min(this.limit + PAGE, MAX_PAGE); }

  close() {
    $("results").hidden = true;
    $("activity").hidden = false;
    this.results = [];
  }

  showTitle(title, note) {
    $("results").hidden = false;
    $("activity").hidden = true;
    $("results-title").textContent = title;
    $("results-note").textContent = note;
  }

  // Show what is missing for a preview: the place or the words.
  showMissing(missing) {
    this.showTitle("Results", missing === "place" ? "Place the subscription on the map and type some words to see matches."
      : "Type a word or two to see matches.");
    this.results = [];
    $("result-list").replaceChildren();
    $("more-results").hidden = true;
  }

  async loadPreview(draft) {
    const [found] = await Promise.all([api.preview(draft), this.reaches.load([draft])]);
    return { isSaved: false, ...found };
  }

  // Load the current result, with the parts of each score.
  async loadCurrent(subscription) {
    const parts = this.kinds.get(subscription.kind).isScored;
    const [found] = await Promise.all([api.results(subscription.id, { limit: this.limit, parts }), this.reaches.load([subscription])]);
    return { isSaved: true, ...found };
  }

  // Return elements that explain a message for a subscription: its text with the words that matched, whether it is in
  // the result, which filters it passes, and its score.
  async explain(subscription, { id, location, text, at, place, attributes }) {
    const kind = this.kinds.get(subscription.kind);
    const found = await api.explain(subscription.id, { id, location, text, at, place, attributes });
    const { score, threshold, passes, reason, parts, hints, highlights } = found;
    const element = document.createElement("div"), verdict = element.appendChild(document.createElement("p"));
    const scoreText = score === null || !kind.isScored ? reason
      : threshold === null ? `score ${this.formatScore(score, kind)}`
      : `score ${this.formatScore(score, kind)}, threshold ${this.formatScore(threshold, kind)}`;
    element.className = "explanation";
    verdict.innerHTML = "<b></b> <span></span>";
    verdict.firstChild.textContent = passes ? "In the result." : "Not in the result.";
    verdict.lastChild.textContent = scoreText;
    element.append(...parts.filter(({ weight }) => weight === null).map((part) => conditionRow(part, kind)));
    element.append(...this.partRows(parts, kind));
    element.append(...hints.map((hint) => Object.assign(document.createElement("p"), { className: "hint", textContent: hint })));
    return [markedText(text, highlights ?? []), element];
  }

  formatScore(score, kind) {
    if (!kind.isScored) return "";
    return kind.greater_is_better ? score.toFixed(3) : this.projection.formatDistance(score);
  }

  show(found, draft) {
    const { isSaved, results, total } = found, kind = this.kinds.get(draft.kind);
    const title = isSaved ? (kind.is_stateful ? "Current result" : "Matches") : "Preview", shown = results.slice(0, this.limit);
    if (total) this.showTitle(`${title}: ${formatInteger(total)}`, this.noteFor(found, shown.length, draft, kind));
    else this.showTitle(isSaved ? "No matches yet" : "No matches", this.adviceFor(isSaved, kind));
    const focused = $("result-list").contains(document.activeElement) && document.activeElement.closest("li")?.dataset.message;
    $("result-list").classList.toggle("unranked", !kind.is_stateful);
    $("result-list").replaceChildren(...shown.map((result) => this.rowOf(result, kind)));
    $("more-results").hidden = shown.length >= Math.min(isSaved ? total : results.length, MAX_PAGE);
    if (focused) ($("result-list").querySelector(`li[data-message="${CSS.escape(focused)}"] button`) ?? $("result-list")).focus();
    this.results = results;
    this.sketch(draft, results);
  }

  // Say what the result counts, and how a preview differs from the result of the saved subscription.
  noteFor({ isSaved, total, among }, nShown, draft, kind) {
    const first = nShown < total ? `The first ${formatInteger(nShown)} are shown.` : "";
    const reach = this.reaches.get(draft), within = typeof reach === "number" ? `Messages match within ${this.projection.formatDistance(reach)}.` : "";
    return [first, isSaved ? savedNote(kind) : previewNote(among, kind), within].filter(Boolean).join(" ");
  }

  adviceFor(isSaved, kind) {
    if (isSaved) return `New matches appear here at once.${kind.needs_window ? "" : ` ${SINCE_SAVED}`}`;
    const terms = this.config.terms.slice(0, 4).join(", ");
    return `Try other words${terms && `, such as ${terms}`}, or move the sliders.`;
  }

  rowOf(result, kind) {
    const item = document.createElement("li");
    item.dataset.message = result.message;
    item.innerHTML = '<div class="head"><button type="button" class="plain"></button><b class="score"></b></div>';
    item.querySelector("button").textContent = textOf(result);
    item.querySelector(".score").textContent = this.formatScore(result.score, kind);
    item.append(...this.partRows(result.parts ?? [], kind));
    return item;
  }

  // One bar per part of a score. If the score is a distance, its bar shows nearness instead.
  partRows(parts, kind) {
    const weighted = parts.filter(({ weight }) => weight !== null), total = weighted.reduce((sum, { weight }) => sum + weight, 0) || 1;
    return weighted.map((part) => {
      const isDistance = !kind.greater_is_better && part.distance !== null;
      const value = isDistance ? Math.max(0, 1 - part.distance / this.projection.maxDistance) : part.value;
      return partRow({ name: isDistance ? "near" : part.name, value, weight: isDistance ? null : part.weight }, part.weight / total, this.noteOf(part));
    });
  }

  noteOf({ distance, shared_terms: sharedTerms, note }) {
    if (distance !== null) return `${this.projection.formatDistance(distance)} away`;
    if (sharedTerms !== null) return sharedTerms.length ? `shares ${sharedTerms.join(", ")}` : "shares no word";
    return note;
  }

  goTo(event) {
    const result = this.results.find(({ message }) => message === event.target.closest("li")?.dataset.message);
    if (!result?.location) return;
    this.map.goTo(result.location);
    this.map.animations.addRing(result.location);
    this.map.animations.addLabel(result.location, textOf(result));
  }

  highlight(message) {
    if (this.highlighted === message) return;
    this.highlighted = message;
    if (this.results.length) this.sketch(this.draft, this.results);
  }

  // The reach of a draft; while it is loading, the last one of the same kind.
  reachOf(draft) {
    const reach = this.reaches.get(draft);
    if (reach !== undefined) this.lastReach = { kind: draft.kind, reach };
    return this.lastReach?.kind === draft.kind ? this.lastReach.reach : null;
  }

  // Draw the subscription and its results on the map. The circle is its reach, or the farthest result.
  sketch(draft, results = []) {
    this.draft = draft;
    const { projection } = this, kind = this.kinds.get(draft.kind), place = kind.placeOf(draft);
    if (!place) return this.map.show("draft", []);
    const found = results.filter(({ location }) => location);
    const farthest = Math.max(0, ...found.map(({ location }) => kind.isRegion ? 0 : projection.distance(place, location)));
    const radius = this.reachOf(draft) ?? (kind.is_stateful ? farthest : 0);
    this.map.show("draft", [
      ...(kind.isRegion ? projection.region(place, { is: "area" }) : [projection.circle(place, radius, { is: "circle" })]),
      ...kind.filterRegionsOf(draft).flatMap((region) => projection.region(region, { is: "filter" })),
      ...(kind.isRegion ? [] : found.map(({ location }) => projection.line(place, location, { is: "thread" }))),
      ...found.map(({ location, message }) => projection.point(location, { is: message === this.highlighted ? "highlighted" : "result" })),
      kind.isRegion ? null : projection.point(place, { is: "pin" }),
    ].filter(Boolean));
  }
}

// What the result of a saved subscription counts.
function savedNote({ is_stateful: isStateful, needs_window: needsWindow }) {
  if (needsWindow) return "The best messages of the window, updated with every message.";
  return isStateful ? "The best messages since it was saved." : "Matches since it was saved that are still in the window.";
}

// What a preview counts, and why the saved subscription may show something else.
function previewNote(among, { needs_window: needsWindow }) {
  const counted = `Matches among the newest ${formatInteger(among)} messages.`;
  return needsWindow ? `${counted} Save the subscription to receive every change.`
    : `${counted} Once saved, it starts empty: only messages that come later count.`;
}

// A row for one part of a score: the track is as long as its weight, and filled up to its value.
function partRow({ name, value, weight }, share, note) {
  const row = document.createElement("div"), title = PART_LABELS[name] ?? name;
  row.className = "part";
  row.innerHTML = '<span class="name"></span><span class="meter" role="meter" aria-valuemin="0" aria-valuemax="1">' +
    '<span class="track"><i></i></span></span><span class="product"></span><small class="muted"></small>';
  const [label, meter, product, small] = row.children, track = meter.firstChild, filled = Math.min(1, value);
  label.textContent = title;
  track.classList.add(name);
  track.style.width = `${100 * share}%`;
  track.firstChild.style.width = `${100 * filled}%`;
  product.textContent = weight === null ? "" : `${value.toFixed(2)} × ${weight.toFixed(2)}`;
  small.textContent = note;
  Object.assign(meter, { ariaLabel: title, ariaValueNow: filled.toFixed(2), ariaValueText: `${product.textContent} ${note}`.trim() });
  return row;
}

// A row for a condition, with a mark that says whether the message fulfils it.
function conditionRow({ name, passes, note }, kind) {
  const row = Object.assign(document.createElement("div"), { className: "condition" }), field = kind.fields[name];
  row.innerHTML = "<b></b> <span></span> <small></small>";
  const [mark, label, small] = row.children;
  row.dataset.passes = passes;
  Object.assign(mark, { textContent: passes ? "✓" : "✗", ariaLabel: passes ? "passes" : "fails" });
  mark.setAttribute("role", "img");
  label.textContent = field?.label ?? name;
  small.textContent = field?.form === "region" ? (passes ? "inside" : "outside") : note;
  return row;
}

// A text in which the words at some positions are marked. Positions count characters, or the terms of a list.
function markedText(text, highlights) {
  const element = document.createElement("p"), isList = Array.isArray(text), units = isList ? text : Array.from(text);
  const join = (part) => part.join(isList ? " " : ""), space = isList ? " " : "";
  let at = 0;
  for (const { start, stop } of highlights) {
    if (start > at) element.append(join(units.slice(at, start)), space);
    element.append(Object.assign(document.createElement("mark"), { textContent: join(units.slice(start, stop)) }), space);
    at = stop;
  }
  element.append(join(units.slice(at)));
  return element;
}
