// The page: a map, subscriptions and statistics. All data comes from the service and goes back to it.

import { Activity } from "./activity.js";
import { api, follow, retry, setToken } from "./api.js";
import { Editor } from "./editor.js";
import { Kinds } from "./kinds.js";
import { LiveMap } from "./map.js";
import { Overview } from "./overview.js";
import { Projection } from "./projection.js";
import { Reaches } from "./reaches.js";
import { Results } from "./results.js";
import { Shards } from "./shards.js";
import { Statistics } from "./statistics.js";
import { SubscriptionCache } from "./subscription-cache.js";
import { SubscriptionList } from "./subscription-list.js";
import { initTheme } from "./theme.js";
import { throttle } from "./throttle.js";
import { showWelcome } from "./welcome.js";

const $ = (id) => document.getElementById(id);
const MIN_INTERVAL_MS = 400;   // between two refreshes of what changes

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
  const [config, descriptions] = await Promise.all([retry(api.config, onRetry), retry(api.kinds, onRetry)]);
  const kinds = new Kinds(descriptions), cache = new SubscriptionCache();
  let overview;
  const list = new SubscriptionList(cache, kinds, { onSelect: (id) => open(id), onFilter: () => overview?.loadSoon() });
  $("list-view").hidden = false;
  await retry(() => list.load(), onRetry);   // before the map, which takes longer
  map = new LiveMap("map", { projection: new Projection(config), kinds, onSelect: (id) => open(id) });
  const reaches = new Reaches();
  const statistics = new Statistics($("statistics"));
  overview = new Overview(map, { cache, reaches, list, isOneOpen: () => editor.isOpen });
  const activity = new Activity(map, { cache, kinds, onSelect: (id) => open(id) });
  const shards = new Shards($("shards"), map, config);
  const results = new Results(map, { config, kinds, reaches });
  const editor = new Editor({ config, kinds, map, results }, {
    onSave(subscription) { cache.put([subscription]); cache.addUpdate(subscription.id, 0); reload(); activity.announce(`saved ${subscription.id}`); },
    onDelete(id) { cache.remove(id); list.remove(id); overview.remove(id); activity.announce(`deleted ${id}`); },
    onOpen() { map.closePopup(); overview.draw(); },
    onClose(id) { map.closePopup(); overview.draw(); list.refresh(); list.focus(id); },
  });

  map.explain = (message) => editor.savedId && results.explain(editor.draft(), message).catch(() => null);
  cache.onLoad = () => {
    activity.connectWaiting();
    if (list.isComplete) reload();   // it was created by another client
  };

  async function open(id) {
    if (!cache.get(id)) await cache.load([id]).catch(() => {});
    const subscription = cache.get(id);
    if (!kinds.get(subscription?.kind)) return;
    cache.markSeen(id);
    const place = kinds.placeOf(subscription);
    if (place) map.goTo(place);
    editor.open(subscription);
  }

  const reload = () => Promise.all([list.reload(), overview.load()]);
  const refreshResults = throttle(() => { if (editor.savedId) editor.refreshResults(); }, MIN_INTERVAL_MS);
  const reloadSoon = throttle(reload, MIN_INTERVAL_MS);
  function handleUpdate({ subscription: id, message, change }) {
    if (cache.removed.has(id)) return;
    const isOpen = editor.savedId === id, hasEntered = change === "enter";
    if (isOpen) refreshResults();
    else cache.addUpdate(id, Number(hasEntered));
    if (hasEntered) activity.addMatch(message, id, isOpen);
  }

  const states = {};
  let isReporting = true;
  function setStreamState(stream, state, reason) {
    const wasLost = Object.values(states).includes("lost");
    states[stream] = state;
    const isLost = Object.values(states).includes("lost");
    if (isLost) setConnection("lost", `connection lost, reconnecting${reason ? `: ${reason}` : ""}`);
    else if (states.feed === "refused") setConnection("live", "live; messages need a token with scope admin");
    else if (!isReporting) setConnection("waiting", "waiting for the first batch of the job on Spark");
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
  await map.ready;
  overview.load();
  follow("v1/feed", (event, data) => {
    if (event === "messages") { map.addMessages(data); activity.connectWaiting(); }
    else if (event === "stats") {
      statistics.add(data, list.all);
      isReporting = data.is_reporting;
      setStreamState("feed", states.feed);
    }
  }, (state, reason) => setStreamState("feed", state, reason));
  follow("v1/updates/events", (event, data) => { if (event === "update") handleUpdate(data); }, (state, reason) => setStreamState("updates", state, reason));
  showWelcome($("welcome"), () => editor.open());
  document.body.dataset.ready = "true";
}

start().catch((error) => {
  if (error.status === 401) requestToken(Boolean(sessionStorage.getItem("token")));
  else setConnection("lost", error.message);
});
