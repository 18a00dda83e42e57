// Who does which part of the work? Regions on the map where space is parted, and everywhere a bar a shard.

import { api } from "./api.js";

const AGAIN_MS = 5000;
const MOST_LABELS = 60;
const hueOf = (shard) => `hsl(${(137.5 * shard + 200) % 360} 55% 50%)`;

export class Shards {
  constructor(place, map, world) {
    Object.assign(this, { place, map, world, labels: [] });
  }

  toggle(isShown) {
    this.place.hidden = !isShown;
    clearInterval(this.again);
    for (const label of this.labels) label.remove();
    if (!isShown) return;
    this.look();
    this.again = setInterval(() => this.look(), AGAIN_MS);
  }

  async look() {
    try {
      const { regions, loads } = await api.shards();
      if (!this.place.hidden) this.draw(regions, loads);
    } catch (error) {
      this.place.textContent = `Shards cannot be told now: ${error.message}`;
    }
  }

  draw(regions, loads) {
    const most = Math.max(...loads, 1), { frame } = this.map;
    this.map.show("shards", regions.map(({ box, shards: [shard = 0] }) =>
      frame.box(box, { colour: hueOf(shard), depth: 0.08 + 0.22 * (loads[shard] ?? 0) / most })));
    for (const label of this.labels) label.remove();
    this.labels = regions.slice(0, MOST_LABELS).map(({ box: [xmin, ymin, xmax, ymax], shards }) =>
      this.map.note(shards.join(" "), [(xmin + xmax) / 2, (ymin + ymax) / 2], { className: "shard" }));
    this.list(loads, most, regions.length > 0);
  }

  list(loads, most, hasRegions) {
    const how = this.world.partitioner ? `, shared by ${this.world.partitioner}` : "";
    const says = !loads.length ? "Nobody says yet who has what."
      : hasRegions ? "Each has its part of the map; deeper colour, more subscriptions."
      : "None has a part of the map to itself: subscriptions are dealt out another way.";
    this.place.innerHTML = "<h2></h2><dl></dl><p class='quiet'></p>";
    const [title, list, last] = this.place.children;
    title.textContent = `${loads.length} ${loads.length === 1 ? "shard" : "shards"}${how}`;
    last.textContent = says;
    list.append(...loads.map((load, shard) => {
      const row = document.createElement("div");
      row.innerHTML = "<dt></dt><span class='room'><i></i></span><dd></dd>";
      row.children[0].textContent = shard;
      Object.assign(row.querySelector("i").style, { width: `${100 * load / most}%`, background: hueOf(shard) });
      row.children[2].textContent = Math.round(load).toLocaleString("en");
      return row;
    }));
  }
}
