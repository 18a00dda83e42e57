// The introduction, shown on the first visit.

const STEPS = [
  "Every dot is a message at the location where it was published.",
  "A subscription selects messages by location and words.",
  "Matching messages are highlighted and connected to the subscription, with the parts of their score.",
];

export function showWelcome(element, onStart) {
  if (localStorage.getItem("welcomed")) return;
  element.innerHTML = `<h2>Welcome to Nearcast</h2><ol>${STEPS.map((step) => `<li>${step}</li>`).join("")}</ol>` +
    '<p class="actions"><button type="button" class="main">Create a subscription</button><button type="button">Just watch</button></p>';
  element.hidden = false;
  const [start, dismiss] = element.querySelectorAll("button");
  const close = () => { localStorage.setItem("welcomed", "yes"); element.hidden = true; };
  start.addEventListener("click", (event) => { close(); onStart(event); });
  dismiss.addEventListener("click", close);
}
