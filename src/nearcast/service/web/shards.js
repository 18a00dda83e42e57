// Shards: their regions on the map, if the partitioner divides space, and a bar per shard with its load.

import { api } from "./api.js";
import { formatInteger } from "./wording.js";

const REFRESH_MS = 5000;
const MAX_LABELS = 60;
const colourOf = (shard) => `hsl(${(137.5 * shard + 200) % 360} 55% 50%)`;

export class Shards {
  constructor(element, map, config) {
    Object.assign(this, { element, map, config, labels: [] });
  }

  toggle(isShown) {
    this.element.hidden = !isShown;
    clearInterval(this.timer);
    for (const label of this.labels) label.remove();
    if (!isShown) return;
    this.refresh();
    this.timer = setInterval(() => this.refresh(), REFRESH_MS);
  }

  async refresh() {
    try {
      const shards = await api.shards();
      if (!this.element.hidden) this.draw(shards);
    } catch (error) {
      this.element.textContent = `The shards are not available: ${error.message}`;
    }
  }

  draw({ regions, loads, adjustments, last_adjustment: last }) {
    const maximum = Math.max(...loads, 1), { projection } = this.map;
    this.map.show("shards", regions.map(({ box, shards: [shard = 0] }) =>
      projection.box(box, { colour: colourOf(shard), opacity: 0.08 + 0.22 * (loads[shard] ?? 0) / maximum })));
    for (const label of this.labels) label.remove();
    this.labels = regions.slice(0, MAX_LABELS).map(({ box: [xmin, ymin, xmax, ymax], shards }) =>
      this.map.addLabel(shards.join(" "), [(xmin + xmax) / 2, (ymin + ymax) / 2], { className: "shard" }));
    this.showLoads(loads, maximum, regions.length > 0);
    if (last) this.element.append(describeAdjustment(adjustments, last));
  }

  showLoads(loads, maximum, hasRegions) {
    const partitioner = this.config.partitioner ? `, partitioned by ${this.config.partitioner}` : "";
    const note = !loads.length ? "No shard has reported its load yet."
      : hasRegions ? "Each shard owns a part of the map. A stronger colour means more subscriptions."
      : "This partitioner does not divide the map, so shards have no regions.";
    this.element.innerHTML = "<h2></h2><dl></dl><p class='muted'></p>";
    const [title, list, last] = this.element.children;
    title.textContent = `${loads.length} ${loads.length === 1 ? "shard" : "shards"}${partitioner}`;
    last.textContent = note;
    list.append(...loads.map((load, shard) => {
      const row = document.createElement("div");
      row.innerHTML = "<dt></dt><span><i></i></span><dd></dd>";
      row.children[0].textContent = shard;
      Object.assign(row.querySelector("i").style, { width: `${100 * load / maximum}%`, background: colourOf(shard) });
      row.children[2].textContent = formatInteger(load);
      return row;
    }));
  }
}

function describeAdjustment(n, last) {
  const note = document.createElement("p");
  note.className = "muted adjustment";
  const times = n === 1 ? "once" : `${formatInteger(n)} times`;
  note.textContent = `Adjusted to the load ${times}. ${DESCRIBED[last.action](last)}`;
  return note;
}

const DESCRIBED = {
  move: ({ load_ratio_before: before, load_ratio_after: after, moved_subscriptions: moved }) =>
    `The last time the busiest shard did ${formatRatio(before)} times the work of the idlest one. ${formatInteger(moved)}`
    + ` ${moved === 1 ? "subscription" : "subscriptions"} moved, which makes it ${formatRatio(after)} times.`,
  refit: () => "Now a fresh routing takes new subscriptions, and older ones stay where they are.",
  retire: ({ moved_subscriptions: moved }) =>
    `The last time an old routing retired, and ${formatInteger(moved)}`
    + ` ${moved === 1 ? "subscription" : "subscriptions"} moved.`,
};

const formatRatio = (ratio) => ratio < 100 ? ratio.toFixed(1) : formatInteger(Math.round(ratio));
