// How far from a subscription a message can be and still match: computed by the service, remembered here.

import { api } from "./api.js";

const MAX_CACHED = 2000;

export class Reaches {
  constructor() { this.cache = new Map(); }   // subscription as JSON -> distance, or null if there is no limit

  // The reach of a subscription: a distance, null if there is no limit, undefined if it is not loaded.
  get(subscription) { return this.cache.get(JSON.stringify(subscription)); }

  // Load the reaches of subscriptions that are not known yet.
  async load(subscriptions) {
    const missing = subscriptions.filter((subscription) => this.get(subscription) === undefined);
    if (!missing.length) return;
    const { reaches } = await api.reaches(missing);
    if (this.cache.size > MAX_CACHED) this.cache.clear();
    missing.forEach((subscription, i) => this.cache.set(JSON.stringify(subscription), reaches[i]));
  }
}
