// What reaches a subscription, and why? Ranked results, each with what its score is made of, in the list and on the map.

import { api } from "./api.js";
import { KINDS, reachOf } from "./kinds.js";
import { textOf } from "./map.js";

const $ = (id) => document.getElementById(id);
const MOST = 30;
const MOST_KNOWN = 1000;
const SCORES = { nearest: (score, frame) => frame.saidDistance(score), boolean: () => "" };   // what is no mix of parts
const NAMES = { near: "nearness", text: "words", social: "friends" };

export class Results {
  constructor(map, world) {
    Object.assign(this, { map, world });
    this.frame = map.frame;
    this.why = new Map();   // "subscription/message" -> parts
    this.found = [];
    $("ranked").addEventListener("click", (event) => this.go(event));
    for (const [name, isOver] of [["mouseover", true], ["focusin", true], ["mouseleave", false], ["focusout", false]]) {
      $("ranked").addEventListener(name, (event) => this.point(isOver ? event.target.closest("li")?.dataset.message : null));
    }
  }

  close() {
    $("results").hidden = true;
    $("lately").hidden = false;
    this.found = [];
  }

  begin(title, says) {
    $("results").hidden = false;
    $("lately").hidden = true;
    $("results-title").textContent = title;
    $("results-says").textContent = says;
  }

  // Say what is missing before anything can be found.
  wait(what) {
    this.begin("Results", what === "place" ? "Put it on the map, and say about what: what fits shows here as you go."
      : "Type a word or two: what fits shows here as you type.");
    this.found = [];
    $("ranked").replaceChildren();
  }

  async previewed(draft) {
    const { results } = await api.preview(draft);
    return { isHeld: false, results };
  }

  // What it holds now, with the parts of each score.
  async held(subscription) {
    const { results } = await api.results(subscription.id);
    if (subscription.kind === "boolean") return { isHeld: true, results };
    const explained = async (one) => ({ ...one, parts: await this.partsOf(subscription, one) });
    return { isHeld: true, results: await Promise.all(results.slice(0, MOST).map(explained)) };
  }

  async partsOf(subscription, { message, location, text, at, place }) {
    const key = JSON.stringify([subscription, message]);
    if (!this.why.has(key) && location && text) {
      const said = await api.explain(subscription.id, { id: message, location, text, at, place });
      if (this.why.size > MOST_KNOWN) this.why.clear();
      this.why.set(key, said.parts);
    }
    return this.why.get(key) ?? [];
  }

  // How a message fares for a subscription, as an element: the verdict, and each part of its score.
  async fares(subscription, { id, location, text, at, place }) {
    const { score, threshold: needed, passes, reason, parts } = await api.explain(subscription.id, { id, location, text, at, place });
    const said = document.createElement("div"), verdict = said.appendChild(document.createElement("p"));
    const number = (value) => SCORES[subscription.kind]?.(value, this.frame) ?? value.toFixed(3);
    const against = score === null || subscription.kind === "boolean" ? reason.replace(/^no match, /, "")
      : needed === null ? number(score) : `${number(score)}, where ${number(needed)} is needed`;
    said.className = "fares";
    verdict.innerHTML = "<b></b> <span></span>";
    verdict.firstChild.textContent = passes ? "In the result." : "Not in the result.";
    verdict.lastChild.textContent = against;
    said.append(...this.bars(parts));
    return said;
  }

  show({ isHeld, results }, draft) {
    const { grows } = KINDS[draft.kind], n = results.length;
    const title = isHeld ? (grows ? "What reached it" : "Its result now") : "Would reach it now";
    if (n) this.begin(`${title}: ${n}`, this.says(isHeld, draft));
    else this.begin(isHeld ? "Nothing has reached it yet" : "Nothing fits now", this.advice(isHeld));
    const focused = $("ranked").contains(document.activeElement) && document.activeElement.closest("li").dataset.message;
    $("ranked").classList.toggle("feed", grows);
    $("ranked").replaceChildren(...results.slice(0, MOST).map((one) => this.row(one, draft)));
    if (focused) ($("ranked").querySelector(`li[data-message="${CSS.escape(focused)}"] button`) ?? $("ranked")).focus();
    this.found = results;
    this.sketch(draft, results);
  }

  says(isHeld, { kind, ...draft }) {
    if (!isHeld) return "Among the newest messages. Save it, and you hear of every change.";
    const reach = reachOf({ kind, ...draft }, this.frame.reach);
    if (kind === "similarity" && reach === null) return "Its words alone suffice: it hears of them from anywhere.";
    if (kind === "similarity") return `From ${this.frame.saidDistance(reach)} away at most.`;
    return KINDS[kind].grows ? "Of the messages that are still in the window." : "Kept exact with every message.";
  }

  advice(isHeld) {
    const words = (this.world.words ?? []).slice(0, 4).join(", ");
    return isHeld ? "It waits. What fits shows here the moment it is said." : `Try other words${words && `, such as ${words}`}, or move the sliders.`;
  }

  row(one, { kind }) {
    const item = document.createElement("li");
    item.dataset.message = one.message;
    item.innerHTML = '<div class="head"><button type="button" class="plain"></button><b class="score"></b></div>';
    item.querySelector("button").textContent = textOf(one);
    item.querySelector(".score").textContent = SCORES[kind]?.(one.score, this.frame) ?? one.score.toFixed(3);
    item.append(...this.bars(one.parts ?? []));
    return item;
  }

  bars(parts) {
    const weighed = parts.filter(({ weight }) => weight !== null), total = weighed.reduce((sum, { weight }) => sum + weight, 0) || 1;
    return weighed.map((part) => part.name === "distance" ? this.away(part) : bar(part, part.weight / total, this.note(part)));
  }

  away({ value }) {
    return bar({ name: "near", value: Math.max(0, 1 - value / this.frame.reach), weight: null }, 1, `${this.frame.saidDistance(value)} away`);
  }

  note({ name, value, note }) {
    if (name === "near") return `${this.frame.saidDistance(Number(note.replace("distance ", "")))} away`;
    if (name === "social") return value === 1 ? "goes there" : value > 0 ? "people alike go there" : "nobody alike goes there";
    return note;
  }

  go(event) {
    const one = this.found.find(({ message }) => message === event.target.closest("li")?.dataset.message);
    if (!one?.location) return;
    this.map.goTo(one.location);
    this.map.motion.pulse(one.location);
    this.map.motion.say(one.location, textOf(one));
  }

  point(message) {
    if (this.pointed === message) return;
    this.pointed = message;
    if (this.found.length) this.sketch(this.draft, this.found);
  }

  // Draw it on the map, with what was found.
  sketch(draft, results = []) {
    this.draft = draft;
    const place = draft.region ?? draft.location;
    if (!place) return this.map.show("draft", []);
    const { frame } = this, found = results.filter(({ location }) => location), isBox = Boolean(draft.region);
    const farthest = Math.max(0, ...found.map(({ location }) => isBox ? 0 : frame.distance(place, location)));
    const radius = draft.kind === "similarity" ? reachOf(draft, frame.reach) : KINDS[draft.kind].grows ? null : farthest;
    this.map.show("draft", [
      isBox ? frame.box(place, { is: "area" }) : radius !== null && frame.circle(place, radius, { is: "circle" }),
      ...(isBox ? [] : found.map(({ location }) => frame.line(place, location, { is: "thread" }))),
      ...found.map(({ location, message }) => frame.point(location, { is: message === this.pointed ? "pointed" : "result" })),
      isBox ? null : frame.point(place, { is: "pin" }),
    ].filter(Boolean));
  }
}

// One part of a score: the track is as long as the part counts, and filled as far as the message goes.
function bar({ name, value, weight }, share, note) {
  const row = document.createElement("div"), title = NAMES[name] ?? name;
  row.className = "part";
  row.innerHTML = '<span class="name"></span><span class="room" role="meter" aria-valuemin="0" aria-valuemax="1">' +
    '<span class="track"><i></i></span></span><span class="sum"></span><small class="quiet"></small>';
  const [label, room, sum, said] = row.children, track = room.firstChild, full = Math.min(1, value);
  label.textContent = title;
  track.classList.add(name);
  track.style.width = `${100 * share}%`;
  track.firstChild.style.width = `${100 * full}%`;
  sum.textContent = weight === null ? "" : `${value.toFixed(2)} × ${weight.toFixed(2)}`;
  said.textContent = note;
  Object.assign(room, { ariaLabel: title, ariaValueNow: full.toFixed(2), ariaValueText: `${sum.textContent} ${note}`.trim() });
  return row;
}
