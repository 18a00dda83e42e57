// What just happened? The latest messages that reached someone, a thread on the map for each, and now and then a
// sentence for who listens instead of looking.

import { textOf } from "./map.js";
import { wordsOf } from "./kinds.js";

const $ = (id) => document.getElementById(id);
const TOLD = 7;
const WAITING = 500;      // updates whose message was not shown yet
const SPOKEN_EVERY_MS = 6000;

export class News {
  constructor(map, opened) {
    this.map = map;
    this.latest = [];
    this.waiting = new Map();  // message -> subscriptions that it reached
    this.counts = { updates: 0, ids: new Set() };
    $("told").addEventListener("click", (event) => {
      const id = event.target.closest("li")?.dataset.id;
      if (id !== undefined) opened(id);
    });
    setInterval(() => this.refresh(), 1000);
    setInterval(() => this.speak(), SPOKEN_EVERY_MS);
  }

  // A message came into the result of a subscription.
  reached(message, subscription, isPicked) {
    this.counts.updates += 1;
    this.counts.ids.add(subscription.id);
    const said = this.map.messages.get(message);
    if (said) return this.connect(said, subscription, isPicked);
    this.waiting.set(message, [...(this.waiting.get(message) ?? []), [subscription, isPicked]]);
    for (const first of this.waiting.keys()) {
      if (this.waiting.size <= WAITING) break;
      this.waiting.delete(first);
    }
  }

  // Messages were shown: some of them may be waited for.
  shown(messages) {
    for (const message of messages) {
      for (const [subscription, isPicked] of this.waiting.get(message.id) ?? []) this.connect(message, subscription, isPicked);
      this.waiting.delete(message.id);
    }
  }

  connect(message, subscription, isPicked) {
    const { region, location } = subscription;
    const end = location ?? [(region[0] + region[2]) / 2, (region[1] + region[3]) / 2];
    this.map.motion.connect(message.location, end, isPicked);
    this.map.motion.say(message.location, textOf(message));
    if (this.latest[0]?.message.id === message.id) this.latest[0].more += 1;
    else this.latest = [{ message, subscription, more: 0 }, ...this.latest].slice(0, TOLD);
    this.isNew = true;
  }

  refresh() {
    if (!this.isNew || $("told").matches(":hover, :focus-within")) return;
    this.isNew = false;
    $("lately-says").hidden = true;
    $("told").replaceChildren(...this.latest.map(({ message, subscription, more }) => {
      const item = document.createElement("li");
      item.dataset.id = subscription.id;
      item.innerHTML = '<button type="button"><span></span><small class="quiet"></small></button>';
      item.querySelector("span").textContent = textOf(message);
      item.querySelector("small").textContent = `reaches ${wordsOf(subscription)}${more ? ` and ${more} more` : ""}`;
      return item;
    }));
  }

  speak() {
    const { updates, ids } = this.counts;
    if (updates) this.say(updates === 1 ? `a message reached ${[...ids][0]}` : `${updates} messages reached ${ids.size} of the subscriptions`);
    this.counts = { updates: 0, ids: new Set() };
  }

  say(text) { $("news").textContent = text; }
}
