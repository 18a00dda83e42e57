// Light or dark? As the system says, until someone chooses.

const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");

export const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

// Set the theme and keep it set; `changed` hears of every change.
export function keepTheme(button, changed) {
  const apply = () => {
    const theme = localStorage.getItem("theme") ?? (system.matches ? "dark" : "light");
    root.dataset.theme = theme;
    button.setAttribute("aria-pressed", String(theme === "dark"));
    changed();
  };
  button.addEventListener("click", () => {
    localStorage.setItem("theme", root.dataset.theme === "dark" ? "light" : "dark");
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}
