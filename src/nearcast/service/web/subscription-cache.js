// The subscriptions that the page knows, which are some of all: those it has listed, drawn or received updates for.

import { api } from "./api.js";
import { throttle } from "./throttle.js";

const MAX_KNOWN = 2000;
const MAX_COUNTED = 5000;    // subscriptions whose updates are counted, known or not
const MAX_LOADED = 50;       // per request
const LOAD_EVERY_MS = 400;

export class SubscriptionCache {
  constructor() {
    this.known = new Map();     // id -> subscription, the oldest first
    this.updates = new Map();   // id -> { nNew, updatedAt }, the latest last
    this.removed = new Set();   // ids that were deleted here; late updates of them are ignored
    this.onLoad = () => {};
    this.loadSoon = throttle(() => this.loadUpdated().catch(() => {}), LOAD_EVERY_MS);
  }

  get(id) { return this.known.get(id); }

  put(subscriptions) {
    for (const subscription of subscriptions) {
      this.removed.delete(subscription.id);
      this.known.delete(subscription.id);
      this.known.set(subscription.id, subscription);
    }
    shrink(this.known, MAX_KNOWN);
  }

  remove(id) {
    this.removed.add(id);
    this.known.delete(id);
    this.updates.delete(id);
  }

  nNewOf(id) { return this.updates.get(id)?.nNew ?? 0; }

  // The known subscriptions with updates: those with new ones first, then by time.
  get updated() {
    const all = [...this.updates].filter(([id]) => this.known.has(id)).reverse();
    return all.sort(([, a], [, b]) => (b.nNew > 0) - (a.nNew > 0) || b.updatedAt - a.updatedAt).map(([id]) => this.known.get(id));
  }

  // Count a change of a subscription: messages that entered its result. Load it soon if it is not known.
  addUpdate(id, nNew) {
    const before = this.nNewOf(id);
    this.updates.delete(id);
    this.updates.set(id, { nNew: before + nNew, updatedAt: performance.now() });
    shrink(this.updates, MAX_COUNTED);
    if (!this.known.has(id)) this.loadSoon();
  }

  markSeen(id) {
    const update = this.updates.get(id);
    if (update) update.nNew = 0;
  }

  // Load the subscriptions with the latest updates that are not known, in one request.
  async loadUpdated() {
    const ids = [...this.updates.keys()].reverse().slice(0, MAX_LOADED).filter((id) => !this.known.has(id));
    if (ids.length && await this.load(ids)) this.onLoad();
  }

  // Load subscriptions by id; return whether there are any.
  async load(ids) {
    const { subscriptions } = await api.subscriptions({ id: ids, limit: ids.length });
    const found = subscriptions.filter(({ id }) => !this.removed.has(id));
    this.put(found);
    for (const id of ids) if (!this.known.has(id)) this.updates.delete(id);   // deleted elsewhere
    return found.length > 0;
  }
}

// Drop the oldest entries of a map.
function shrink(map, size) {
  for (const key of map.keys()) {
    if (map.size <= size) return;
    map.delete(key);
  }
}
