// The subscriptions in view on the map: each of them, or clusters of them if there are many. The service finds them.

import { api } from "./api.js";
import { MAX_DETAILED } from "./map.js";
import { throttle } from "./throttle.js";

const LOAD_EVERY_MS = 200;

export class Overview {
  constructor(map, { cache, reaches, list, isOneOpen }) {
    Object.assign(this, { map, cache, reaches, list, isOneOpen });
    this.subscriptions = [];
    this.clusters = [];
    this.lastRequest = 0;
    this.loadSoon = throttle(() => this.load(), LOAD_EVERY_MS);
    map.map.on("moveend", this.loadSoon);
  }

  // Load what the view shows; outdated answers are dropped, and if the request fails, the map stays as it is.
  async load() {
    const number = ++this.lastRequest;
    try {
      const answer = await api.clusters({ ...this.list.filter, within: this.map.view.join() });
      if (number !== this.lastRequest) return;
      this.subscriptions = answer.subscriptions.filter(({ id }) => !this.cache.removed.has(id));
      this.clusters = answer.clusters;
      this.cache.put(this.subscriptions);
      this.draw();
      if (!this.subscriptions.length || this.subscriptions.length > MAX_DETAILED) return;
      await this.reaches.load(this.subscriptions);
      if (number === this.lastRequest) this.draw();
    } catch { /* the next move of the map tries again */ }
  }

  draw() {
    this.map.showSubscriptions(this.subscriptions, this.reaches, this.isOneOpen());
    this.map.showClusters(this.clusters, this.isOneOpen());
  }

  remove(id) {
    this.subscriptions = this.subscriptions.filter((subscription) => subscription.id !== id);
    this.draw();
    this.load();
  }
}
