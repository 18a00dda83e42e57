// The page: a map, subscriptions and statistics. All data comes from the service and goes back to it.

import { Activity } from "./activity.js";
import { api, follow, retry, setToken } from "./api.js";
import { Editor } from "./editor.js";
import { Kinds } from "./kinds.js";
import { LiveMap, MAX_DETAILED } from "./map.js";
import { Projection } from "./projection.js";
import { Reaches } from "./reaches.js";
import { Results } from "./results.js";
import { Shards } from "./shards.js";
import { Statistics } from "./statistics.js";
import { SubscriptionList } from "./subscription-list.js";
import { initTheme } from "./theme.js";
import { showWelcome } from "./welcome.js";

const $ = (id) => document.getElementById(id);
const MIN_INTERVAL_MS = 400;   // between two refreshes of what changes

// Return a function that runs `work` at most once per interval.
function throttle(work) {
  let timer;
  return () => { timer ??= setTimeout(() => { timer = undefined; work(); }, MIN_INTERVAL_MS); };
}

function setConnection(state, text) {
  $("connection").dataset.state = state;
  $("connection").textContent = text;
}

// Ask for a token and reload the page with it.
function requestToken(wasSent) {
  setConnection("waiting", "token required");
  $("token-form").hidden = false;
  $("token-error").textContent = wasSent ? "The service does not know this token." : "";
  $("token").focus();
  $("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    setToken($("token").value);
    location.reload();
  });
}

async function start() {
  let map;
  initTheme($("theme"), () => { map?.recolour(); map?.animations.recolour(); });
  if (!document.createElement("canvas").getContext("webgl2")) throw new Error("the map needs WebGL 2, which this browser does not support");
  const onRetry = (error) => setConnection("lost", `service not available, retrying: ${error.message}`);
  const config = await retry(api.config, onRetry);
  const kinds = new Kinds(await retry(api.kinds, onRetry));
  $("list-view").hidden = false;
  map = new LiveMap("map", { projection: new Projection(config), kinds, onSelect: (id) => open(id) });
  const reaches = new Reaches();
  const statistics = new Statistics($("statistics"));
  const list = new SubscriptionList(kinds, (id) => open(id));
  const activity = new Activity(map, kinds, (id) => open(id));
  const shards = new Shards($("shards"), map, config);
  const results = new Results(map, { config, kinds, reaches });
  const editor = new Editor({ config, kinds, map, results }, {
    onSave(subscription) { list.put(subscription); list.refresh(); redraw(); activity.announce(`saved ${subscription.id}`); },
    onDelete(id) { list.remove(id); redraw(); activity.announce(`deleted ${id}`); },
    onOpen() { map.closePopup(); redraw(); },
    onClose(id) { map.closePopup(); redraw(); list.refresh(); list.focus(id); },
  });

  map.explain = (message) => editor.savedId && results.explain(editor.draft(), message).catch(() => null);

  async function redraw() {
    const draw = () => map.showSubscriptions(list.subscriptions, reaches, editor.isOpen);
    draw();
    if (list.subscriptions.length > MAX_DETAILED) return;
    await reaches.load(list.subscriptions).catch(() => {});
    draw();
  }

  function open(id) {
    const subscription = list.get(id);
    if (!kinds.get(subscription?.kind)) return;
    list.markSeen(id);
    const place = kinds.placeOf(subscription);
    if (place) map.goTo(place);
    editor.open(subscription);
  }

  async function reload() {
    const all = [];
    for await (const subscription of api.subscriptions()) all.push(subscription);
    list.replaceAll(all);
    redraw();
  }

  const refreshResults = throttle(() => { if (editor.savedId) editor.refreshResults(); });
  const reloadSoon = throttle(() => reload().catch(() => {}));
  function handleUpdate({ subscription: id, message, change }) {
    if (!list.get(id)) return reloadSoon();   // created by another client
    const isOpen = editor.savedId === id;
    if (isOpen) refreshResults();
    else list.addUpdate(id);
    if (change === "enter") activity.addMatch(message, list.get(id), isOpen);
  }

  const states = {};
  function setStreamState(stream, state, reason) {
    const wasLost = Object.values(states).includes("lost");
    states[stream] = state;
    const isLost = Object.values(states).includes("lost");
    if (isLost) setConnection("lost", `connection lost, reconnecting${reason ? `: ${reason}` : ""}`);
    else if (states.feed === "refused") setConnection("live", "live; messages need a token with scope admin");
    else setConnection("live", "live");
    if (wasLost && !isLost) reloadSoon();
  }

  $("new").addEventListener("click", (event) => editor.open(null, { byKeyboard: event.detail === 0 }));
  for (const checkbox of document.querySelectorAll("[data-layer]")) {
    checkbox.addEventListener("change", () => {
      map.toggle(checkbox.dataset.layer, checkbox.checked);
      if (checkbox.dataset.layer === "shards") shards.toggle(checkbox.checked);
    });
  }
  await Promise.all([map.ready, retry(reload, onRetry)]);
  redraw();
  follow("v1/feed", (event, data) => {
    if (event === "messages") { map.addMessages(data); activity.addMessages(data); }
    else if (event === "stats") statistics.add(data, list.entries.size);
  }, (state, reason) => setStreamState("feed", state, reason));
  follow("v1/updates/events", (event, data) => { if (event === "update") handleUpdate(data); }, (state, reason) => setStreamState("updates", state, reason));
  showWelcome($("welcome"), () => editor.open());
  document.body.dataset.ready = "true";
}

start().catch((error) => {
  if (error.status === 401) requestToken(Boolean(sessionStorage.getItem("token")));
  else setConnection("lost", error.message);
});
