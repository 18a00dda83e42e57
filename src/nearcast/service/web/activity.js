// Recent matches: the latest messages that entered a result, a thread on the map for each, and a summary for screen
// readers every few seconds.

import { textOf } from "./map.js";
import { centreOf } from "./regions.js";

const $ = (id) => document.getElementById(id);
const MAX_LISTED = 7;
const MAX_WAITING = 500;      // matches whose message or subscription is not known yet
const ANNOUNCE_EVERY_MS = 6000;

export class Activity {
  constructor(map, { cache, kinds, onSelect }) {
    Object.assign(this, { map, cache, kinds });
    this.latest = [];
    this.waiting = [];   // matches, the oldest first
    this.counts = { matches: 0, ids: new Set() };
    $("activity-list").addEventListener("click", (event) => {
      const id = event.target.closest("li")?.dataset.id;
      if (id !== undefined) onSelect(id);
    });
    setInterval(() => this.refresh(), 1000);
    setInterval(() => this.announceCounts(), ANNOUNCE_EVERY_MS);
  }

  // Add a message that entered the result of a subscription, both given by id.
  addMatch(messageId, id, isSelected) {
    this.counts.matches += 1;
    this.counts.ids.add(id);
    const match = { messageId, id, isSelected };
    if (!this.connect(match)) this.waiting = [...this.waiting, match].slice(-MAX_WAITING);
  }

  // Show the matches whose message and subscription are known by now.
  connectWaiting() { this.waiting = this.waiting.filter((match) => !this.connect(match)); }

  // Show a match, if its message and its subscription are known; return whether they are.
  connect({ messageId, id, isSelected }) {
    const message = this.map.messages.get(messageId), subscription = this.cache.get(id);
    if (!message || !subscription) return false;
    const place = this.kinds.placeOf(subscription);
    if (place) this.map.animations.addThread(message.location, centreOf(place), isSelected);
    this.map.animations.addLabel(message.location, textOf(message));
    if (this.latest[0]?.message.id === message.id) this.latest[0].nMore += 1;
    else this.latest = [{ message, subscription, nMore: 0 }, ...this.latest].slice(0, MAX_LISTED);
    this.hasChanged = true;
    return true;
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
