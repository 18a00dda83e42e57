// Recent matches: the latest messages that entered a result, a thread on the map for each, and a summary for screen
// readers every few seconds.

import { centreOf } from "./kinds.js";
import { textOf } from "./map.js";

const $ = (id) => document.getElementById(id);
const MAX_LISTED = 7;
const MAX_WAITING = 500;      // matches whose message has not arrived through the feed
const ANNOUNCE_EVERY_MS = 6000;

export class Activity {
  constructor(map, kinds, onSelect) {
    this.map = map;
    this.kinds = kinds;
    this.latest = [];
    this.waiting = new Map();  // message id -> [subscription, isSelected] pairs
    this.counts = { matches: 0, ids: new Set() };
    $("activity-list").addEventListener("click", (event) => {
      const id = event.target.closest("li")?.dataset.id;
      if (id !== undefined) onSelect(id);
    });
    setInterval(() => this.refresh(), 1000);
    setInterval(() => this.announceCounts(), ANNOUNCE_EVERY_MS);
  }

  // Add a message that entered the result of a subscription.
  addMatch(messageId, subscription, isSelected) {
    this.counts.matches += 1;
    this.counts.ids.add(subscription.id);
    const message = this.map.messages.get(messageId);
    if (message) return this.connect(message, subscription, isSelected);
    this.waiting.set(messageId, [...(this.waiting.get(messageId) ?? []), [subscription, isSelected]]);
    for (const oldest of this.waiting.keys()) {
      if (this.waiting.size <= MAX_WAITING) break;
      this.waiting.delete(oldest);
    }
  }

  // Add messages of the feed, and show the matches that waited for them.
  addMessages(messages) {
    for (const message of messages) {
      for (const [subscription, isSelected] of this.waiting.get(message.id) ?? []) this.connect(message, subscription, isSelected);
      this.waiting.delete(message.id);
    }
  }

  connect(message, subscription, isSelected) {
    const place = this.kinds.placeOf(subscription);
    if (place) this.map.animations.addThread(message.location, centreOf(place), isSelected);
    this.map.animations.addLabel(message.location, textOf(message));
    if (this.latest[0]?.message.id === message.id) this.latest[0].nMore += 1;
    else this.latest = [{ message, subscription, nMore: 0 }, ...this.latest].slice(0, MAX_LISTED);
    this.hasChanged = true;
  }

  refresh() {
    if (!this.hasChanged || $("activity-list").matches(":hover, :focus-within")) return;
    this.hasChanged = false;
    $("activity-note").hidden = true;
    $("activity-list").replaceChildren(...this.latest.map(({ message, subscription, nMore }) => {
      const item = document.createElement("li");
      item.dataset.id = subscription.id;
      item.innerHTML = '<button type="button"><span></span><small class="muted"></small></button>';
      item.querySelector("span").textContent = textOf(message);
      item.querySelector("small").textContent = `matches ${this.kinds.wordsOf(subscription)}${nMore ? ` and ${nMore} more` : ""}`;
      return item;
    }));
  }

  announceCounts() {
    const { matches, ids } = this.counts;
    if (matches) this.announce(matches === 1 ? `one message matches ${[...ids][0]}` : `${matches} matches for ${ids.size} subscriptions`);
    this.counts = { matches: 0, ids: new Set() };
  }

  announce(text) { $("announcements").textContent = text; }
}
